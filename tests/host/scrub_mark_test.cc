// How far a scrub has come, kept beside the array.
#include "host/scrub_mark.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <future>
#include <optional>
#include <string>
#include <thread>

#include "base/read_text.h"
#include "report/json.h"
#include "tests/support/no_threads.h"
#include "tests/support/temp_dir.h"

namespace eplog {
namespace {

ArrayFile In(const TempDir& directory) {
  ArrayFile file;
  file.file = directory.path() / kArrayFileName;
  file.uuid = "00000000-0000-4000-8000-000000000001";
  return file;
}

ScrubMark At(uint64_t stripe) {
  ScrubMark mark;
  mark.heal = true;
  mark.next_stripe = stripe;
  mark.problems_found = 3;
  return mark;
}

TEST(ScrubMarkFile, TheNewestIsThereAtTheNextOpening) {
  const TempDir directory;
  {
    ScrubMarkFile marks(In(directory));
    EXPECT_FALSE(marks.newest());
    const ScrubMarkKeeper keeper = marks.Keeper();
    for (uint64_t i = 1; i <= 1000; ++i) {
      keeper.save(At(i));
      EXPECT_EQ(keeper.load(), At(i)) << "though it may not be written yet";
    }
  }
  {
    ScrubMarkFile marks(In(directory));
    EXPECT_EQ(marks.newest(), At(1000));
    marks.Keep(std::nullopt);
  }
  EXPECT_FALSE(ScrubMarkFile(In(directory)).newest());
  EXPECT_FALSE(std::filesystem::exists(ScrubMarkPath(In(directory))));
}

// As it is written: a later version reads it.
TEST(ScrubMarkFile, HoldsEachFigureUnderItsName) {
  const TempDir directory;
  ScrubMark mark = At(5);
  mark.healed = 2;
  mark.lost = 1;
  {
    ScrubMarkFile marks(In(directory));
    marks.Keep(mark);
  }
  const std::string text = ReadText(ScrubMarkPath(In(directory)));
  EXPECT_EQ(text,
            "{\"uuid\":\"00000000-0000-4000-8000-000000000001\",\"heal\":true,\"next_stripe\":5,"
            "\"problems_found\":3,\"healed\":2,\"lost\":1}\n");
  EXPECT_EQ(ScrubMarkPath(In(directory)), directory.path() / "scrub.json");
  EXPECT_FALSE(std::filesystem::exists(directory.path() / "scrub.json.new"));
  ScrubMarkFile again(In(directory));
  EXPECT_EQ(again.newest(), mark);
  ForgetScrubMark(In(directory));
  EXPECT_FALSE(std::filesystem::exists(ScrubMarkPath(In(directory))));
  ForgetScrubMark(In(directory));
}

// Half a mark, or another array's, is none: the scrub begins at the beginning.
TEST(ScrubMarkFile, WhatIsNotWholeIsNoMark) {
  const TempDir directory;
  const Json whole = {{"uuid", In(directory).uuid}, {"heal", false}, {"next_stripe", 5},
                      {"problems_found", 3},        {"healed", 2},   {"lost", 1}};
  const auto found = [&](const std::string& text) {
    directory.Write("scrub.json", text);
    return ScrubMarkFile(In(directory)).newest();
  };
  ASSERT_TRUE(found(whole.dump()).has_value());
  EXPECT_FALSE(found(whole.dump())->heal);
  EXPECT_EQ(found(whole.dump())->next_stripe, 5U);
  for (const auto& [key, value] : whole.items()) {
    Json half = whole;
    half.erase(key);
    EXPECT_FALSE(found(half.dump()).has_value()) << "without " << key;
    for (const Json& other : {Json("x"), Json(-1), Json(1.5), Json()}) {
      half[key] = other;
      EXPECT_FALSE(found(half.dump()).has_value()) << key << " " << other.dump();
    }
  }
  for (const char* text : {"", "[]", "7", "garbled"}) {
    EXPECT_FALSE(found(text).has_value()) << text;
  }
}

TEST(ScrubMarkFile, WhereAnotherArrayIsByNowNothingIsWritten) {
  const TempDir directory;
  ArrayFile other = In(directory);
  other.uuid[0] = 'f';
  other.name = "other";
  other.members = {{"ssd0", "ssd0"}};
  {
    ScrubMarkFile marks(In(directory));
    directory.Write("array.toml", FormatArrayFile(other));
    marks.Keep(At(1));
  }
  EXPECT_FALSE(std::filesystem::exists(ScrubMarkPath(other)));
  directory.Write("scrub.json", "the other's");
  {
    ScrubMarkFile marks(In(directory));
    marks.Keep(std::nullopt);
  }
  EXPECT_TRUE(std::filesystem::exists(ScrubMarkPath(other)));
}

// A pipe that nobody reads stands for a file on a file system that hangs.
TEST(ScrubMarkFile, AFileThatHangsHoldsNobodyUp) {
  const TempDir directory;
  const std::string pipe = ScrubMarkPath(In(directory)).string() + ".new";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  std::promise<void> kept;
  std::promise<void> ended;
  std::thread scrub([&] {
    {
      ScrubMarkFile marks(In(directory));
      for (uint64_t i = 1; i <= 1000; ++i) {
        marks.Keep(At(i));
      }
      EXPECT_EQ(marks.newest(), At(1000));
      kept.set_value();
    }
    ended.set_value();
  });
  EXPECT_EQ(kept.get_future().wait_for(std::chrono::minutes(1)), std::future_status::ready);
  EXPECT_EQ(ended.get_future().wait_for(std::chrono::minutes(1)), std::future_status::ready);
  const int reader = ::open(pipe.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);  // sets all free
  scrub.join();
  ::close(reader);
}

void AMarkIsWrittenOnceThereIsAThread() {
  ThreadLimit limit;
  const TempDir directory;
  {
    ScrubMarkFile marks(In(directory));
    marks.Keep(At(1));
    EXPECT_EQ(marks.newest(), At(1));
    limit.Lift();
    marks.Keep(At(2));
  }
  EXPECT_EQ(ScrubMarkFile(In(directory)).newest(), At(2));
}

TEST(ScrubMarkFileDeathTest, AMarkIsWrittenOnceThereIsAThread) {
  EPLOG_IN_A_PROCESS(AMarkIsWrittenOnceThereIsAThread);
}

}  // namespace
}  // namespace eplog
