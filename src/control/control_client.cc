// ControlRequest: the blocking side that a verb uses. It trusts nobody but the owner of the array's
// socket and root, and waits for nobody who does not run.
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "base/process_life.h"
#include "control/control.h"
#include "control/peer.h"
#include "control/server_mark.h"

namespace eplog {
namespace {

using Clock = std::chrono::steady_clock;

constexpr auto kLook = std::chrono::milliseconds(20);
// How often one who waits looks whether the other still runs.
constexpr auto kLookAtPeer = std::chrono::seconds(2);
// A process that is stopped for so long is not just being looked at by a debugger.
constexpr auto kStopped = std::chrono::seconds(5);

tl::unexpected<Error> Untrusted(const std::string& what) {
  return Fail(ErrorCode::kUnsupported, what);
}

bool Trusted(uid_t uid) {
  return uid == 0 || uid == ::geteuid();
}

}  // namespace

class ControlClient::Connection {
 public:
  Connection(std::string path, ControlPatience patience)
      : path_(std::move(path)),
        patience_(patience),
        fd_(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)) {}
  ~Connection() {
    if (fd_ >= 0) {
      ::close(fd_);
    }
  }
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  Status Connect();
  [[nodiscard]] int peer() const { return peer_.pid; }  // 0: nobody
  Status Send(const std::string& text);
  // One line without its end; an error if the server hung up or does not run any more.
  Result<std::string> Line();
  // Like Line, but not longer than patience.silence: for an answer that takes no time.
  Result<std::string> LineSoon();

 private:
  enum class Seen : uint8_t { kReady, kNothing };
  Seen Wait(short events, std::chrono::milliseconds longest) const;
  // Until the descriptor is ready, or whoever is there does not answer to anything.
  Status WaitReady(short events, bool soon);
  [[nodiscard]] Status CheckRuns();
  [[nodiscard]] Error Silent(const std::string& why) const;
  Result<std::string> ReadLine(bool soon);

  const std::string path_;
  const ControlPatience patience_;
  const int fd_;
  ucred peer_{};
  Clock::time_point stopped_since_ = Clock::time_point::max();
  std::string received_;
};

Error ControlClient::Connection::Silent(const std::string& why) const {
  const std::string who =
      peer_.pid > 0 ? "process " + std::to_string(peer_.pid) : std::string("a process");
  return {.code = ErrorCode::kBusy, .message = who + " serves this array and " + why};
}

Status ControlClient::Connection::Connect() {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (fd_ < 0 || path_.size() >= sizeof(address.sun_path)) {
    return FailErrno(fd_ < 0 ? EMFILE : ENAMETOOLONG, "control socket " + path_);
  }
  std::memcpy(address.sun_path, path_.c_str(), path_.size() + 1);
  const auto until = Clock::now() + patience_.silence;
  while (::connect(fd_, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
    if (errno == ENOENT || errno == ECONNREFUSED) {
      return Fail(ErrorCode::kNotFound, "nobody serves this array");
    }
    if (errno != EAGAIN && errno != EINTR) {
      return FailErrno(errno, "control socket " + path_);
    }
    // Its queue is full: it looks at nobody, or will never again.
    if (const auto mark = ReadServerMark(path_)) {
      peer_.pid = mark->pid;
      if (LifeOf(*mark) == ServerLife::kDying) {
        return Fail(ErrorCode::kNotFound, "nobody serves this array");
      }
      EPLOG_TRY(CheckRuns());
    }
    if (Clock::now() >= until) {
      return Fail(Silent("lets nobody in: is it stopped?"));
    }
    std::this_thread::sleep_for(kLook);
  }
  socklen_t size = sizeof(peer_);
  if (::getsockopt(fd_, SOL_SOCKET, SO_PEERCRED, &peer_, &size) != 0) {
    return FailErrno(errno, "control socket " + path_);
  }
  if (!PeerIsAlive(fd_)) {
    return Fail(ErrorCode::kNotFound, "nobody serves this array");
  }
  if (!Trusted(peer_.uid)) {
    return Untrusted("control socket " + path_ + " is answered by user " +
                     std::to_string(peer_.uid) + " (process " + std::to_string(peer_.pid) +
                     "), who is not believed; remove it");
  }
  return OkStatus();
}

ControlClient::Connection::Seen ControlClient::Connection::Wait(
    short events, std::chrono::milliseconds longest) const {
  pollfd poll = {fd_, events, 0};
  return ::poll(&poll, 1, static_cast<int>(longest.count())) > 0 ? Seen::kReady : Seen::kNothing;
}

// A verb may take as long as it takes; a process that is stopped, or whose loop turns no more,
// carries out none.
Status ControlClient::Connection::CheckRuns() {
  const char state = ProcessState(peer_.pid);
  const bool killed = state != '\0' && !ProcessActs(peer_.pid);
  if (state != 'T' && state != 't' && !killed) {
    stopped_since_ = Clock::time_point::max();
    return OkStatus();
  }
  stopped_since_ = std::min(stopped_since_, Clock::now());
  if (Clock::now() - stopped_since_ < kStopped) {
    return OkStatus();
  }
  if (killed) {
    return Fail(
        Silent("was killed and does not end: the kernel waits for a device of its that "
               "does not answer"));
  }
  return Fail(Silent("is stopped; kill -CONT " + std::to_string(peer_.pid) + " lets it go on"));
}

Status ControlClient::Connection::WaitReady(short events, bool soon) {
  auto silent_since = Clock::now();
  while (Wait(events, kLookAtPeer) == Seen::kNothing) {
    EPLOG_TRY(CheckRuns());
    if (Clock::now() - silent_since < patience_.silence) {
      continue;
    }
    const Error silent =
        Silent("has not answered for " + std::to_string(patience_.silence.count() / 1000) +
               " s, to nothing; its log, and what it waits for, may tell why");
    if (soon) {
      return Fail(silent);
    }
    // Long work, or nobody at home? Any answer to anything will do. One who is about to end lets
    // nobody in any more.
    Connection other(path_, patience_);
    const Status connected = other.Connect();
    if (!connected.ok() && connected.error().code == ErrorCode::kNotFound) {
      silent_since = Clock::now();
      continue;
    }
    if (!connected.ok() || !other.Send("{\"verb\":\"are-you-there\"}\n").ok() ||
        !other.LineSoon().ok()) {
      return Fail(silent);
    }
    silent_since = Clock::now();
  }
  return OkStatus();
}

Status ControlClient::Connection::Send(const std::string& text) {
  size_t sent = 0;
  while (sent < text.size()) {
    const ssize_t n = ::send(fd_, text.data() + sent, text.size() - sent, MSG_NOSIGNAL);
    if (n < 0 && errno == EAGAIN) {
      EPLOG_TRY(WaitReady(POLLOUT, /*soon=*/true));
    } else if (n < 0 && errno != EINTR) {
      return FailErrno(errno, "the serving process hung up");
    }
    sent += n < 0 ? 0 : static_cast<size_t>(n);
  }
  return OkStatus();
}

Result<std::string> ControlClient::Connection::Line() {
  return ReadLine(/*soon=*/false);
}

Result<std::string> ControlClient::Connection::LineSoon() {
  return ReadLine(/*soon=*/true);
}

Result<std::string> ControlClient::Connection::ReadLine(bool soon) {
  std::array<char, 16384> chunk{};
  size_t searched = 0;
  while (true) {
    const size_t end = received_.find('\n', searched);
    if (end != std::string::npos) {
      std::string line = received_.substr(0, end);
      received_.erase(0, end + 1);
      return line;
    }
    searched = received_.size();
    const ssize_t n = ::recv(fd_, chunk.data(), chunk.size(), 0);
    if (n < 0 && errno == EAGAIN) {
      EPLOG_TRY(WaitReady(POLLIN, soon));
      continue;
    }
    if (n < 0 && errno == EINTR) {
      continue;
    }
    if (n <= 0) {
      return FailErrno(n < 0 ? errno : 0, "the serving process hung up without an answer");
    }
    received_.append(chunk.data(), static_cast<size_t>(n));
  }
}

namespace {

ErrorCode CodeNamed(const std::string& name) {
  for (int code = 0; code <= static_cast<int>(ErrorCode::kShutdown); ++code) {
    if (name == ErrorCodeName(static_cast<ErrorCode>(code))) {
      return static_cast<ErrorCode>(code);
    }
  }
  return ErrorCode::kIo;
}

std::string TextOf(const Json& json, const char* key) {
  const auto found = json.find(key);
  return found != json.end() && found->is_string() ? found->get<std::string>() : std::string();
}

bool IsProgress(const Json& line) {
  const auto found = line.find("progress");
  return found != line.end() && found->is_array() && found->size() == 2 &&
         (*found)[0].is_number_integer() && (*found)[1].is_number_integer();
}

}  // namespace

// Where others can make files, anybody could answer in the array's name.
Status CheckControlDirectory(const std::string& socket_path) {
  const std::string directory = ControlDirectory(socket_path);
  struct stat info {};
  if (::lstat(directory.c_str(), &info) != 0) {
    return errno == ENOENT ? Status(Fail(ErrorCode::kNotFound, "nobody serves this array"))
                           : Status(FailErrno(errno, "control directory " + directory));
  }
  if (!S_ISDIR(info.st_mode) || !Trusted(info.st_uid)) {
    return Untrusted("control directory " + directory + " belongs to user " +
                     std::to_string(info.st_uid) +
                     ", so that nothing in it is believed; remove it, or set XDG_RUNTIME_DIR to a "
                     "directory of your own");
  }
  if ((info.st_mode & 0022) != 0) {
    return Untrusted("control directory " + directory +
                     " can be written by others, so that nothing in it is believed; look what is "
                     "there, then chmod 700 " +
                     directory);
  }
  return OkStatus();
}

Result<ControlClient> ControlClient::Connect(const std::string& socket_path,
                                             ControlPatience patience) {
  EPLOG_TRY(CheckControlDirectory(socket_path));
  auto connection = std::make_unique<Connection>(socket_path, patience);
  EPLOG_TRY(connection->Connect());
  return ControlClient(std::move(connection));
}

ControlClient::ControlClient(std::unique_ptr<Connection> connection)
    : connection_(std::move(connection)) {}
ControlClient::ControlClient(ControlClient&& other) noexcept = default;
ControlClient& ControlClient::operator=(ControlClient&& other) noexcept = default;
ControlClient::~ControlClient() = default;

int ControlClient::pid() const {
  return connection_->peer();
}

Result<Json> ControlClient::Request(const Json& request,
                                    const std::function<void(uint64_t, uint64_t)>& progress) {
  return Ask(request, progress, Wait::kForWork);
}

Result<Json> ControlClient::RequestSoon(const Json& request) {
  return Ask(request, {}, Wait::kSoon);
}

Result<Json> ControlClient::Ask(const Json& request,
                                const std::function<void(uint64_t, uint64_t)>& progress,
                                Wait wait) {
  const Status sent =
      connection_->Send(request.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n");
  while (true) {
    const Result<std::string> line =
        wait == Wait::kSoon ? connection_->LineSoon() : connection_->Line();
    if (!line.ok()) {
      return Fail(sent.ok() ? line.error() : sent.error());  // nor a word at parting
    }
    const Json answer = Json::parse(*line, nullptr, /*allow_exceptions=*/false);
    if (!answer.is_object()) {
      return Fail(ErrorCode::kCorrupt, "the serving process answered nonsense");
    }
    if (IsProgress(answer)) {
      if (progress) {
        progress(answer["progress"][0].get<uint64_t>(), answer["progress"][1].get<uint64_t>());
      }
      continue;
    }
    sent_away_ = answer.contains("again") && answer["again"] == true;
    const auto ok = answer.find("ok");
    if (ok != answer.end() && *ok == true) {
      const auto result = answer.find("result");
      return result == answer.end() ? Json() : Json(*result);
    }
    const std::string error = TextOf(answer, "error");
    return Fail(CodeNamed(TextOf(answer, "code")),
                error.empty() ? "the serving process refused and did not say why" : error);
  }
}

Result<Json> ControlRequest(const std::string& socket_path, const Json& request,
                            const std::function<void(uint64_t, uint64_t)>& progress,
                            ControlPatience patience) {
  auto client = ControlClient::Connect(socket_path, patience);
  if (!client.ok()) {
    return Fail(std::move(client).error());
  }
  return client->Request(request, progress);
}

}  // namespace eplog
