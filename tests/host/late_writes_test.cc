// What was asked of devices that an opening would trust may still be carried out after the array has
// stopped, or has not even opened: until this process ends nobody else opens it for writing.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/fs.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <optional>
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

class LateWrites : public FileArrayTest {
 protected:
  // More members than parity replaces, on what can be frozen.
  void SetUp() override {
    if (::geteuid() != 0 || ::access("/dev/loop-control", W_OK) != 0) {
      GTEST_SKIP() << "needs root and loop devices";
    }
    FileArrayTest::SetUp();
    if (IsSkipped()) {
      return;
    }
    mount_.emplace(dir_);
    ASSERT_TRUE(mount_->mounted());
    Move("ssd0", mount_->on());
    Move("ssd1", mount_->on());
    options_.io_deadline_us = 2'000'000;
  }
  void ExpectNobodyElseMayWrite() {
    const auto beside = OneWriter::Take(file_);
    ASSERT_FALSE(beside.ok());
    EXPECT_EQ(beside.error().code, ErrorCode::kBusy);
  }

  MemberOptions options_;
  std::optional<FreezableMount> mount_;

 private:
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

TEST_F(LateWrites, OfAnOpeningThatFailedKeepTheLock) {
  ASSERT_TRUE(mount_->Freeze());
  const auto session = Open(file_, options_);
  mount_->Thaw();
  EXPECT_FALSE(session.ok());
  ExpectNobodyElseMayWrite();
}

TEST_F(LateWrites, OfAnArrayThatStoppedKeepTheLockBeyondItsClosing) {
  auto session = Open(file_, options_);
  ASSERT_TRUE(session.ok()) << session.error().message;
  ASSERT_TRUE(mount_->Freeze());
  EXPECT_FALSE((*session)->Run((*session)->array().CreateVolume("v", kBytes / 4)).ok());
  EXPECT_FALSE((*session)->Close().ok());
  session->reset();
  mount_->Thaw();
  ExpectNobodyElseMayWrite();
}

// With nothing on its way there is nothing to wait for.
TEST_F(LateWrites, LetTheLockGoWhereEachDeviceAnswered) {
  for (const char* member : {"ssd0", "ssd1"}) {
    std::filesystem::resize_file(mount_->on() / member, 0);
    std::filesystem::resize_file(mount_->on() / member, kBytes);
  }
  EXPECT_FALSE(Open(file_, options_).ok());
  EXPECT_TRUE(OneWriter::Take(file_).ok());
}

}  // namespace
}  // namespace eplog
