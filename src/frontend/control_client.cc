// ControlRequest: the blocking side that a verb uses.
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

#include "frontend/control.h"
#include "frontend/peer.h"

namespace eplog {
namespace {

class Connection {
 public:
  Connection() : fd_(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)) {}
  ~Connection() {
    if (fd_ >= 0) {
      ::close(fd_);
    }
  }
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  Status Connect(const std::string& path) const;
  Status Send(const std::string& text) const;
  // One line without its end; an error if the server hung up.
  Result<std::string> Line();

 private:
  int fd_;
  std::string received_;
};

Status Connection::Connect(const std::string& path) const {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (fd_ < 0 || path.size() >= sizeof(address.sun_path)) {
    return FailErrno(fd_ < 0 ? EMFILE : ENAMETOOLONG, "control socket " + path);
  }
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  const bool connected =
      ::connect(fd_, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0;
  if (connected && PeerIsAlive(fd_)) {
    return OkStatus();
  }
  if (connected || errno == ENOENT || errno == ECONNREFUSED) {
    return Fail(ErrorCode::kNotFound, "nobody serves this array");
  }
  return FailErrno(errno, "control socket " + path);
}

Status Connection::Send(const std::string& text) const {
  size_t sent = 0;
  while (sent < text.size()) {
    const ssize_t n = ::send(fd_, text.data() + sent, text.size() - sent, MSG_NOSIGNAL);
    if (n < 0 && errno != EINTR) {
      return FailErrno(errno, "the serving process hung up");
    }
    sent += n < 0 ? 0 : static_cast<size_t>(n);
  }
  return OkStatus();
}

Result<std::string> Connection::Line() {
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
    if (n < 0 && errno == EINTR) {
      continue;
    }
    if (n <= 0) {
      return FailErrno(n < 0 ? errno : 0, "the serving process hung up without an answer");
    }
    received_.append(chunk.data(), static_cast<size_t>(n));
  }
}

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

Result<Json> ControlRequest(const std::string& socket_path, const Json& request,
                            const std::function<void(uint64_t, uint64_t)>& progress) {
  Connection connection;
  EPLOG_TRY(connection.Connect(socket_path));
  EPLOG_TRY(connection.Send(request.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n"));
  while (true) {
    const Result<std::string> line = connection.Line();
    if (!line.ok()) {
      return Fail(line.error());
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

}  // namespace eplog
