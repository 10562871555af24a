// Words that only few ever hear: of who is hung up on, and of a server that is the first process.
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstring>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "control/control.h"
#include "control/peer.h"
#include "control/server_mark.h"
#include "runtime/io_uring_loop.h"
#include "tests/runtime/await.h"
#include "tests/support/files.h"

namespace eplog {
namespace {

sockaddr_un SocketAt(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::strncpy(address.sun_path, path.c_str(), sizeof(address.sun_path) - 1);
  return address;
}

class ControlWords : public testing::Test {
 protected:
  void SetUp() override { ::chmod(directory_.path().c_str(), 0700); }

  const TemporaryDirectory directory_;
  const std::string path_ = directory_ / "a.sock";
};

Task<void> TurnUntil(EventLoop& loop, std::function<bool()> holds) {
  while (!holds()) {
    co_await loop.Sleep(1000);
  }
}

Task<Result<Json>> AnswerNothing(Json /*request*/, ProgressSink /*progress*/) {
  co_return Json();
}

// Of those who asked for nothing the one that came first gives way, and may ask again.
TEST_F(ControlWords, WhoGivesWayIsToldWhy) {
  auto made = IoUringLoop::Create();
  if (!made.ok()) {
    GTEST_SKIP() << "needs io_uring";
  }
  IoUringLoop& loop = **made;
  auto server = ControlServer::Listen(loop, path_, &AnswerNothing);
  ASSERT_TRUE(server.ok());
  const sockaddr_un address = SocketAt(path_);
  std::vector<std::unique_ptr<File>> guests;
  for (int i = 0; i < 65; ++i) {
    guests.push_back(
        std::make_unique<File>(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)));
    ASSERT_EQ(::connect(guests.back()->fd(), reinterpret_cast<const sockaddr*>(&address),
                        sizeof(address)),
              0);
  }
  const std::string request = "{\"verb\":\"v\"}\n";
  ASSERT_EQ(::send(guests.back()->fd(), request.data(), request.size(), MSG_NOSIGNAL),
            static_cast<ssize_t>(request.size()));
  std::string answer(1000, '\0');
  ssize_t answered = 0;
  test::Await(loop, TurnUntil(loop, [&] {
                answered = ::recv(guests.back()->fd(), answer.data(), answer.size(), 0);
                return answered >= 0;
              }));
  answer.resize(static_cast<size_t>(answered));
  EXPECT_EQ(answer, "{\"ok\":true,\"result\":null}\n");
  std::string told(1000, '\0');
  const ssize_t n = ::recv(guests.front()->fd(), told.data(), told.size(), 0);
  told.resize(n < 0 ? 0 : static_cast<size_t>(n));
  EXPECT_EQ(told,
            "{\"ok\":false,\"error\":\"the serving process is asked by too many at once: again\","
            "\"code\":\"busy\",\"again\":true}\n");
  test::Await(loop, (*server)->Stop(0));
}

// Nothing failed: there is no error of the system to be told.
TEST_F(ControlWords, AnEndIsNoErrorOfTheSystem) {
  const sockaddr_un address = SocketAt(path_);
  const File listener(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  ASSERT_EQ(::bind(listener.fd(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
  ASSERT_EQ(::listen(listener.fd(), 1), 0);
  std::thread server([&] {
    const File connection(::accept4(listener.fd(), nullptr, nullptr, SOCK_CLOEXEC));
    for (char byte = 0; byte != '\n' && ::recv(connection.fd(), &byte, 1, 0) == 1;) {
    }
  });
  errno = EIO;  // of something before
  const Result<Json> answer = ControlRequest(path_, {{"verb", "v"}});
  server.join();
  ASSERT_FALSE(answer.ok());
  EXPECT_EQ(answer.error().errno_value, 0);
  EXPECT_EQ(answer.error().ToString(), "the serving process hung up without an answer");
}

// As in a container that holds nothing else.
TEST_F(ControlWords, TheFirstProcessMayServe) {
  std::ofstream(directory_ / "first.server") << "1 22 333\n";
  const auto mark = ReadServerMark(directory_ / "first.sock");
  ASSERT_TRUE(mark);
  EXPECT_EQ(mark->pid, 1);
  EXPECT_EQ(mark->started, 22U);
  EXPECT_EQ(mark->mount, 333U);
  EXPECT_NE(ProcessState(1), '\0');
  for (const char* nobody : {"0 22 333\n", "-1 22 333\n"}) {
    std::ofstream(directory_ / "nobody.server") << nobody;
    EXPECT_FALSE(ReadServerMark(directory_ / "nobody.sock")) << nobody;
  }
  EXPECT_EQ(ReadServerMarks(directory_.path()).size(), 1U);
}

}  // namespace
}  // namespace eplog
