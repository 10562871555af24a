// ControlServer: sockets are polled and used without blocking; one coroutine a connection.
#include "control/control.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <list>
#include <optional>
#include <string>
#include <utility>

#include "base/check.h"
#include "control/peer.h"
#include "control/server_mark.h"
#include "runtime/io_uring_loop.h"
#include "runtime/sync.h"
#include "text/words.h"

namespace eplog {
namespace {

constexpr uint64_t kAcceptRetryUs = 100'000;
// Who has just come, or was answered, is about to ask: he may be looking at devices before that,
// and a machine may be busy.
constexpr uint64_t kIdleUs = 2'000'000;

// Names never reach an error line unless they are valid text: invalid bytes are replaced.
std::string Dump(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

Json ErrorAnswer(const Error& error) {
  return {{"ok", false}, {"error", OneLine(error.ToString())}, {"code", ErrorCodeName(error.code)}};
}

std::string ErrorLine(const Error& error) {
  return Dump(ErrorAnswer(error));
}

// For one who is hung up on: what he may just be asking was not read, and is not carried out.
std::string SentAwayLine() {
  Json answer = ErrorAnswer({.code = ErrorCode::kBusy,
                             .message = "the serving process is asked by too many at once: again"});
  answer["again"] = true;
  return Dump(answer);
}

Result<sockaddr_un> Address(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof(address.sun_path)) {
    return Fail(ErrorCode::kInvalidArgument, "control socket path is too long: " + path);
  }
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  return address;
}

// A killed process's socket may accept connections for a moment, until the kernel has taken its
// io_uring apart: the listener must also be alive.
bool SomebodyAnswers(const std::string& path, const sockaddr_un& address) {
  const int fd = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  const int result = ::connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address));
  bool answers = false;
  if (result == 0) {
    answers = PeerIsAlive(fd);
  } else if (errno == EAGAIN) {  // its queue is full
    const auto mark = ReadServerMark(path);
    answers = !mark || LifeOf(*mark) != ServerLife::kDying;
  }
  ::close(fd);
  return answers;
}

bool PeerIsAllowed(int fd) {
  ucred peer{};
  socklen_t size = sizeof(peer);
  return ::getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 &&
         (peer.uid == 0 || peer.uid == ::geteuid());
}

}  // namespace

class ControlServer::Impl {
 public:
  Impl(IoUringLoop& loop, std::string path, ControlHandler handler, int fd)
      : loop_(loop),
        path_(std::move(path)),
        handler_(std::move(handler)),
        listen_fd_(fd),
        changed_(loop),
        ended_(loop) {}
  ~Impl() {
    EPLOG_CHECK(ended_.count() == 0, "a control server is destroyed before it was stopped");
    ::close(listen_fd_);
  }

  void Begin();
  void StopAccepting();
  Task<void> Stop(uint64_t grace_us);
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  struct Connection {
    int fd = -1;
    bool answering = false;      // a request was read and its answer has not left
    bool ready = false;          // the answer is there and its reader is not
    bool broken = false;         // the peer is gone
    bool evicted = false;        // hung up on, and not gone yet
    uint64_t idle_since_us = 0;  // nothing is being answered, or the answer is ready
    ControlLines in;
    std::string out;  // what the socket did not take yet
  };

  Task<void> Accept();
  void AcceptAll();
  enum class Room : uint8_t { kThere, kSoon, kNone };
  struct Place {
    Room room = Room::kNone;
    bool instead = false;          // somebody has to go for it
    Connection* leaves = nullptr;  // who would
  };
  Place FindPlace();
  [[nodiscard]] bool SomebodyWaits() const;
  static void SendAway(Connection& connection);
  Task<void> Serve(Connection& connection);
  Task<bool> ReadLine(Connection& connection, std::string& line);
  Task<void> Answer(Connection& connection, std::string line);
  static bool SendSome(Connection& connection);
  Task<void> SendAll(Connection& connection);
  static void SendProgress(Connection& connection, uint64_t done, uint64_t total);

  IoUringLoop& loop_;
  std::string path_;
  ControlHandler handler_;
  int listen_fd_;
  bool accepting_ = true;
  bool again_ = false;  // somebody waits who could not be let in
  std::list<Connection> connections_;
  Event changed_;  // a connection ended or went idle
  WaitGroup ended_;
};

void ControlServer::Impl::Begin() {
  ended_.Add();
  loop_.Spawn(Accept());
}

Task<void> ControlServer::Impl::Accept() {
  while (accepting_) {
    // A shutdown of the listening socket also wakes this.
    static_cast<void>(co_await loop_.PollAdd(listen_fd_, POLLIN));
    AcceptAll();
    if (std::exchange(again_, false) && accepting_) {
      co_await loop_.Sleep(kAcceptRetryUs);
    }
  }
  ended_.Done();
}

void ControlServer::Impl::AcceptAll() {
  while (accepting_) {
    const Place place = FindPlace();
    if (place.room == Room::kSoon) {
      again_ = true;
      return;
    }
    const int fd = ::accept4(listen_fd_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0) {
      again_ = errno == EMFILE || errno == ENFILE || errno == ENOMEM;
      if (errno == EMFILE && place.leaves != nullptr && SomebodyWaits()) {
        SendAway(*place.leaves);  // his descriptor is what is missing
      }
      return;
    }
    if (place.room == Room::kNone) {
      const std::string busy =
          ErrorLine({ErrorCode::kBusy, "the serving process carries out " +
                                           std::to_string(kMaxControlConnections) +
                                           " verbs already: try again when one has ended"});
      static_cast<void>(::send(fd, busy.data(), busy.size(), MSG_NOSIGNAL));
    }
    if (place.room == Room::kNone || !PeerIsAllowed(fd)) {
      ::close(fd);
      continue;
    }
    if (place.instead) {
      SendAway(*place.leaves);
    }
    Connection& connection = connections_.emplace_back();
    connection.fd = fd;
    connection.idle_since_us = loop_.NowUs();
    ended_.Add();
    loop_.Spawn(Serve(connection));
  }
}

// To be let in. Without a descriptor `accept` says what is missing even where nobody does.
bool ControlServer::Impl::SomebodyWaits() const {
  pollfd polled{listen_fd_, POLLIN, 0};
  return ::poll(&polled, 1, 0) == 1;
}

// Whoever only keeps a connection, or does not take his answer, gives way to one who asks for
// something: the one that came first.
ControlServer::Impl::Place ControlServer::Impl::FindPlace() {
  size_t living = 0;
  bool any_idle = false;
  Connection* leaves = nullptr;
  for (Connection& connection : connections_) {
    living += connection.evicted ? 0 : 1;
    if (connection.evicted || (connection.answering && !connection.ready)) {
      continue;
    }
    any_idle = true;
    if (leaves == nullptr && loop_.NowUs() - connection.idle_since_us >= kIdleUs) {
      leaves = &connection;
    }
  }
  if (living < kMaxControlConnections) {
    return {Room::kThere, false, leaves};
  }
  if (leaves == nullptr) {
    return {any_idle ? Room::kSoon : Room::kNone};
  }
  return {Room::kThere, true, leaves};
}

void ControlServer::Impl::SendAway(Connection& connection) {
  connection.evicted = true;
  connection.broken = true;
  if (!connection.answering) {
    const std::string away = SentAwayLine();
    static_cast<void>(::send(connection.fd, away.data(), away.size(), MSG_NOSIGNAL | MSG_DONTWAIT));
  }
  ::shutdown(connection.fd, SHUT_RDWR);  // its task ends
}

Task<void> ControlServer::Impl::Serve(Connection& connection) {
  while (!connection.broken) {
    std::string line;
    Task<bool> reading = ReadLine(connection, line);
    const bool got_line = co_await reading;
    if (!got_line || connection.evicted) {
      break;
    }
    connection.answering = true;
    Task<void> answering = Answer(connection, std::move(line));
    co_await answering;
    connection.answering = false;
    connection.idle_since_us = loop_.NowUs();
    changed_.NotifyAll();
  }
  ::close(connection.fd);
  connections_.remove_if([&](const Connection& other) { return &other == &connection; });
  changed_.NotifyAll();
  ended_.Done();
}

// False: the peer is done, or sent a line that nobody should.
Task<bool> ControlServer::Impl::ReadLine(Connection& connection, std::string& line) {
  std::array<char, 4096> chunk{};
  while (true) {
    if (std::optional<std::string> next = connection.in.Next()) {
      line = std::move(*next);
      co_return true;
    }
    if (connection.in.too_long()) {
      connection.out += ErrorLine({ErrorCode::kInvalidArgument, "the request is too long"});
      SendSome(connection);
      co_return false;
    }
    const ssize_t n = ::recv(connection.fd, chunk.data(), chunk.size(), 0);
    if (n > 0) {
      connection.in.Add({chunk.data(), static_cast<size_t>(n)});
      continue;
    }
    if (n == 0 || (errno != EAGAIN && errno != EINTR)) {
      co_return false;
    }
    static_cast<void>(co_await loop_.PollAdd(connection.fd, POLLIN));
  }
}

Task<void> ControlServer::Impl::Answer(Connection& connection, std::string line) {
  Result<Json> request = DecodeControlRequest(line);
  if (!request.ok()) {
    connection.out += ErrorLine(request.error());
    SendSome(connection);
    connection.broken = true;  // what follows is no better
    co_return;
  }
  Connection* to = &connection;
  ProgressSink sink = [to](uint64_t done, uint64_t total) { SendProgress(*to, done, total); };
  Task<Result<Json>> task = handler_(std::move(*request), std::move(sink));
  const Result<Json> result = co_await task;
  if (result.ok()) {
    connection.out += Dump({{"ok", true}, {"result", *result}});
  } else {
    connection.out += ErrorLine(result.error());
  }
  connection.ready = true;
  connection.idle_since_us = loop_.NowUs();
  Task<void> sending = SendAll(connection);
  co_await sending;
  connection.ready = false;
}

// True: everything is out, or never will be.
bool ControlServer::Impl::SendSome(Connection& connection) {
  while (!connection.out.empty() && !connection.broken) {
    const ssize_t n =
        ::send(connection.fd, connection.out.data(), connection.out.size(), MSG_NOSIGNAL);
    if (n >= 0) {
      connection.out.erase(0, static_cast<size_t>(n));
    } else if (errno == EAGAIN) {
      return false;
    } else if (errno != EINTR) {
      connection.broken = true;
    }
  }
  return true;
}

Task<void> ControlServer::Impl::SendAll(Connection& connection) {
  while (!SendSome(connection)) {
    static_cast<void>(co_await loop_.PollAdd(connection.fd, POLLOUT));
  }
}

// A client that reads slowly misses progress; it never slows the work down.
void ControlServer::Impl::SendProgress(Connection& connection, uint64_t done, uint64_t total) {
  if (SendSome(connection) && !connection.broken) {
    connection.out += Dump({{"progress", {done, total}}});
    SendSome(connection);
  }
}

void ControlServer::Impl::StopAccepting() {
  if (std::exchange(accepting_, false)) {
    RemoveServerMark(path_);
    ::unlink(path_.c_str());
    ::shutdown(listen_fd_, SHUT_RDWR);
  }
}

Task<void> ControlServer::Impl::Stop(uint64_t grace_us) {
  StopAccepting();
  const uint64_t deadline_us = loop_.NowUs() + grace_us;
  while (loop_.NowUs() < deadline_us) {
    bool busy = false;
    for (const Connection& connection : connections_) {
      busy = busy || connection.answering;
    }
    if (!busy) {
      break;
    }
    co_await changed_.WaitUntil(deadline_us);
  }
  for (const Connection& connection : connections_) {
    ::shutdown(connection.fd, SHUT_RDWR);
  }
  Task<void> rest = ended_.Wait();
  co_await rest;
}

Result<std::unique_ptr<ControlServer>> ControlServer::Listen(IoUringLoop& loop, std::string path,
                                                             ControlHandler handler, dev_t mount) {
  const Result<sockaddr_un> address = Address(path);
  EPLOG_TRY(address);
  EPLOG_TRY(PrepareControlDirectory(path));
  if (SomebodyAnswers(path, *address)) {
    return Fail(ErrorCode::kBusy, "another process serves this array at " + path);
  }
  ::unlink(path.c_str());
  const int fd = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  // A killed process that does not end accepts nobody, and keeps those who tried: room for many, so
  // that whoever connects is told which process it is. The mode of the socket file is the mode of
  // the socket when it is bound: never open to others. Whoever cannot bind it leaves socket and mark
  // as they are: they may be another's, who was quicker.
  if (fd < 0 || ::fchmod(fd, 0600) != 0 ||
      ::bind(fd, reinterpret_cast<const sockaddr*>(&*address), sizeof(*address)) != 0 ||
      ::chmod(path.c_str(), 0600) != 0) {
    const int error = errno;
    ::close(fd);
    return FailErrno(error, "cannot listen on the control socket " + path);
  }
  // The mark before anybody can connect: who does reads in it whom he waits for.
  Status marked = WriteServerMark(path, mount);
  if (marked.ok() && ::listen(fd, SOMAXCONN) != 0) {
    marked = FailErrno(errno, "cannot listen on the control socket " + path);
    RemoveServerMark(path);
  }
  if (!marked.ok()) {
    ::close(fd);
    ::unlink(path.c_str());
    return Fail(std::move(marked).error());
  }
  auto impl = std::make_unique<Impl>(loop, std::move(path), std::move(handler), fd);
  impl->Begin();
  return std::unique_ptr<ControlServer>(new ControlServer(std::move(impl)));
}

ControlServer::ControlServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
ControlServer::~ControlServer() = default;

void ControlServer::StopAccepting() {
  impl_->StopAccepting();
}
Task<void> ControlServer::Stop(uint64_t grace_us) {
  return impl_->Stop(grace_us);
}
const std::string& ControlServer::path() const {
  return impl_->path();
}

}  // namespace eplog
