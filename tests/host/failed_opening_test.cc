// What an opening for writing asked of its devices may still be carried out after it has failed.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/fs.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <string>

#include "host/one_writer.h"
#include "tests/host/file_array.h"

namespace eplog {
namespace {

namespace fs = std::filesystem;

// An ext4 of its own, which reads and lets no write pass while it is frozen.
class FreezableMount {
 public:
  explicit FreezableMount(const TempDir& dir) : on_(dir.path() / "frozen") {
    const fs::path image = dir.WriteSparse("image", uint64_t{96} << 20);
    fs::create_directory(on_);
    const std::string make = "mkfs.ext4 -q '" + image.string() + "' && mount -o loop '" +
                             image.string() + "' '" + on_.string() + "'";
    mounted_ = std::system(make.c_str()) == 0;
    fd_ = ::open(on_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  }
  ~FreezableMount() {
    Thaw();
    ::close(fd_);
    if (mounted_) {
      ::umount2(on_.c_str(), MNT_DETACH);  // a session that failed may still have files open there
    }
  }
  FreezableMount(const FreezableMount&) = delete;
  FreezableMount& operator=(const FreezableMount&) = delete;

  [[nodiscard]] bool mounted() const { return mounted_; }
  [[nodiscard]] const fs::path& on() const { return on_; }
  [[nodiscard]] bool Freeze() const { return ::ioctl(fd_, FIFREEZE, 0) == 0; }
  void Thaw() const { ::ioctl(fd_, FITHAW, 0); }

 private:
  fs::path on_;
  bool mounted_ = false;
  int fd_ = -1;
};

class FailedOpening : public FileArrayTest {
 protected:
  void Move(const std::string& member, const fs::path& to) {
    fs::copy_file(At(member), to / member);
    fs::remove(At(member));
    ASSERT_TRUE(ChangeArrayFile(file_, [&](ArrayFile& now) {
                  now.PlaceMembers({{member, (to / member).string()}});
                }).ok());
    const auto now = LoadArrayFile(file_.file);
    ASSERT_TRUE(now.ok());
    file_ = *now;
  }
};

// More devices than parity replaces take no write: nothing of that is written down, and who opens
// the array next trusts them.
TEST_F(FailedOpening, KeepsTheLockWhileItsWritesAreOnTheirWay) {
  if (::geteuid() != 0 || ::access("/dev/loop-control", W_OK) != 0) {
    GTEST_SKIP() << "needs root and loop devices";
  }
  const FreezableMount mount(dir_);
  ASSERT_TRUE(mount.mounted());
  Move("ssd0", mount.on());
  Move("ssd1", mount.on());
  MemberOptions options;
  options.io_deadline_us = 2'000'000;
  ASSERT_TRUE(mount.Freeze());
  const auto session = Open(file_, options);
  mount.Thaw();
  ASSERT_FALSE(session.ok());
  const auto beside = OneWriter::Take(file_);
  ASSERT_FALSE(beside.ok()) << session.error().message;
  EXPECT_EQ(beside.error().code, ErrorCode::kBusy);
}

// With nothing on its way there is nothing to wait for.
TEST_F(FailedOpening, LetsTheLockGoWhereEachDeviceAnswered) {
  for (const char* member : {"ssd0", "ssd1"}) {
    dir_.WriteSparse(member, kBytes);  // blank
  }
  EXPECT_FALSE(Open(file_).ok());
  EXPECT_TRUE(OneWriter::Take(file_).ok());
}

}  // namespace
}  // namespace eplog
