// The control socket: how verbs talk to the process that serves an array.
//
// A Unix stream socket, mode 0600; a peer must be the owner of the serving process or root
// (SO_PEERCRED). One JSON document a line in both directions. A client sends {"verb":...,
// arguments...} and receives any number of
// {"progress":[done,total]}, then one of
//   {"ok":true,"result":...}
//   {"ok":false,"error":"one line","code":"busy"}
// and may send its next request. At most 64 are connected: one more waits until another has ended
// or waited for nothing for two seconds, who is told
//   {"ok":false,"error":"one line","code":"busy","again":true}
// and hung up on; if all have a verb in progress, the new one is told so.
// This file knows lines and sockets, not verbs. Beside the socket stands who listens
// (server_mark.h).
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "control/control_lines.h"
#include "eplog/array.h"
#include "eplog/result.h"
#include "eplog/task.h"
#include "report/json.h"

namespace eplog {

class IoUringLoop;

// More than that, and those that wait for nothing go. Each takes a descriptor.
inline constexpr size_t kMaxControlConnections = 64;

// May be called at any time until the handler's task ends.
using ProgressSink = Progress;
// Answers one request. Lives as long as the server; `request` is an object with a string "verb".
using ControlHandler = std::function<Task<Result<Json>>(Json request, ProgressSink progress)>;

class ControlServer {
 public:
  // Bind and listen. A socket file that nobody answers is replaced: call this only while holding
  // the array's lock. kBusy: somebody answers. Connections are accepted from the next turn of the
  // loop on. `mount`: the file system that this process serves (FuseServer::device); 0: none.
  [[nodiscard]] static Result<std::unique_ptr<ControlServer>> Listen(IoUringLoop& loop,
                                                                     std::string path,
                                                                     ControlHandler handler,
                                                                     dev_t mount = 0);
  // After Stop.
  ~ControlServer();
  ControlServer(const ControlServer&) = delete;
  ControlServer& operator=(const ControlServer&) = delete;

  // Accept nobody any more and remove the socket file. What is connected goes on.
  void StopAccepting();
  // StopAccepting, let requests in flight end and their replies leave (each at most `grace_us`),
  // close everything.
  Task<void> Stop(uint64_t grace_us);

  [[nodiscard]] const std::string& path() const;

 private:
  class Impl;
  explicit ControlServer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

struct ControlPatience {
  // How long the server may answer to nothing at all. A verb may take longer: whoever waits for it
  // asks something else meanwhile.
  std::chrono::milliseconds silence{60'000};
};

// A connection to whoever serves there: several requests to the same process. Blocks the calling
// thread.
class ControlClient {
 public:
  // kNotFound: nobody serves there, or one who was killed. kBusy: somebody does, and is stopped or
  // answers to nothing.
  // kUnsupported: what is there is not believed: the directory must be ours or root's, and closed
  // to others for writing, and so must be the process that listens.
  [[nodiscard]] static Result<ControlClient> Connect(const std::string& socket_path,
                                                     ControlPatience patience = {});
  ControlClient(ControlClient&& other) noexcept;
  ControlClient& operator=(ControlClient&& other) noexcept;
  ~ControlClient();

  // Send one request and wait for its answer. `progress` may be empty. An answer with "ok":false is
  // an Error with the server's code and line.
  [[nodiscard]] Result<Json> Request(const Json& request,
                                     const std::function<void(uint64_t, uint64_t)>& progress = {});
  // The same for what takes no time. kBusy: nothing came for as long as the patience lasts.
  [[nodiscard]] Result<Json> RequestSoon(const Json& request);
  // The last request was not read, since too many are connected: it may be made again, over a
  // connection of its own.
  [[nodiscard]] bool sent_away() const { return sent_away_; }
  // Of the process at the other end; 0: it cannot be told.
  [[nodiscard]] int pid() const;

 private:
  class Connection;
  enum class Wait : uint8_t { kForWork, kSoon };
  Result<Json> Ask(const Json& request, const std::function<void(uint64_t, uint64_t)>& progress,
                   Wait wait);
  explicit ControlClient(std::unique_ptr<Connection> connection);
  std::unique_ptr<Connection> connection_;
  bool sent_away_ = false;
};

// Connect, one request, and hang up.
[[nodiscard]] Result<Json> ControlRequest(
    const std::string& socket_path, const Json& request,
    const std::function<void(uint64_t, uint64_t)>& progress = {}, ControlPatience patience = {});

// The directory of the socket is ours or root's, and closed to others for writing: what is in it is
// believed. kNotFound: there is none.
[[nodiscard]] Status CheckControlDirectory(const std::string& socket_path);

// Where the socket of an array is: /run/eplog/UUID.sock for root, else
// $XDG_RUNTIME_DIR/eplog/UUID.sock or /tmp/eplog-UID/UUID.sock. Only names it.
[[nodiscard]] std::string ControlSocketPath(const std::string& array_uuid);
[[nodiscard]] std::string ControlDirectory(const std::string& socket_path);
// Make the directory of the socket (0700), or make sure that it is ours and closed to others.
[[nodiscard]] Status PrepareControlDirectory(const std::string& socket_path);

}  // namespace eplog
