// One change of array.toml after the other, and none that is waited for for ever.
#include "host/change_turn.h"

#include <gtest/gtest.h>

#include <chrono>
#include <future>
#include <memory>
#include <string>

#include "tests/support/temp_dir.h"

namespace eplog {
namespace {

using Clock = ChangeTurn::Clock;

TEST(ChangeTurns, AreTakenByOneAtATime) {
  ChangeTurn turn;
  const auto never = Clock::now() + std::chrono::minutes(5);
  ASSERT_TRUE(turn.Take(never));
  EXPECT_FALSE(turn.Take(Clock::now())) << "it is another's";
  EXPECT_FALSE(turn.Take(Clock::now()));
  turn.GiveBack();
  ASSERT_TRUE(turn.Take(Clock::now()));
  auto waiting = std::async(std::launch::async, [&] { return turn.Take(never); });
  turn.GiveBack();
  EXPECT_TRUE(waiting.get());
  EXPECT_FALSE(turn.Take(Clock::now())) << "who waited has it";
}

class ChangesInTime : public testing::Test {
 protected:
  ChangesInTime() {
    file_.file = dir_.path() / "array.toml";
    file_.uuid = "0123abcd-0123-4567-89ab-0123456789ab";
    file_.name = "demo";
    file_.members = {{"ssd0", "ssd0"}};
  }
  TempDir dir_;
  ArrayFile file_;
  const std::shared_ptr<ChangeTurn> turn_ = std::make_shared<ChangeTurn>();
};

TEST_F(ChangesInTime, ReturnWhatStandsThereThen) {
  ASSERT_TRUE(WriteArrayFile(file_).ok());
  ArrayFile other = file_;
  ASSERT_TRUE(ChangeArrayFile(other, [](ArrayFile& now) { now.AddSpare("/dev/sdx"); }).ok());
  const auto changed = ChangeInTime(
      file_, [](ArrayFile& now) { now.AddSpare("/dev/sdy"); }, turn_);
  ASSERT_TRUE(changed.ok());
  const std::vector<std::string> both = {"/dev/sdx", "/dev/sdy"};
  EXPECT_EQ(changed->spares, both);
  EXPECT_EQ(LoadArrayFile(dir_.path())->spares, both);
}

TEST_F(ChangesInTime, GiveTheTurnBackAlsoAfterAnError) {
  dir_.Write("array.toml", "garbled [[[");
  for (int i = 0; i < 2; ++i) {
    const auto refused = ChangeInTime(
        file_, [](ArrayFile&) {}, turn_);
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().code, ErrorCode::kCorrupt);
  }
  std::filesystem::remove(file_.file);
  EXPECT_TRUE(ChangeInTime(
                  file_, [](ArrayFile&) {}, turn_)
                  .ok());
  EXPECT_TRUE(turn_->Take(Clock::now()));
}

// The one before has not come back yet.
TEST_F(ChangesInTime, WithoutTheTurnNothingIsChanged) {
  ASSERT_TRUE(WriteArrayFile(file_).ok());
  ASSERT_TRUE(turn_->Take(Clock::now()));
  const auto late = ChangeInTime(
      file_, [](ArrayFile& now) { now.AddSpare("/dev/sdx"); }, turn_);
  ASSERT_FALSE(late.ok());
  EXPECT_EQ(late.error().code, ErrorCode::kDeviceFailed);
  EXPECT_EQ(
      late.error().message,
      file_.file.string() + " could not be changed within 10 s: its file system does not answer");
  EXPECT_TRUE(LoadArrayFile(dir_.path())->spares.empty());
}

}  // namespace
}  // namespace eplog
