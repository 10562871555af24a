// What all formats share: damage, bad shares, order, packing.
#include <gtest/gtest.h>

#include <fstream>

#include "tests/support/temp_dir.h"
#include "tests/trace/trace_util.h"
#include "trace/byte_source.h"

namespace eplog {
namespace {

using trace_test::ReadBytes;
using trace_test::Whole;

std::string Lines(int count, int bad_every = 0) {
  std::string text;
  for (int i = 1; i <= count; ++i) {
    text += bad_every != 0 && i % bad_every == 0
                ? "rubbish\n"
                : std::to_string(i * 10) + ",h,0,Write," + std::to_string(i * 4096) + ",4096,0\n";
  }
  return text;
}

TraceOptions As(TraceFormat format) {
  TraceOptions options;
  options.format = format;
  return options;
}

TraceOptions Unordered() {
  TraceOptions options;
  options.unordered = true;
  return options;
}

std::string Contents(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

void ExpectRefusal(const Whole& whole, ErrorCode code, const char* reason) {
  ASSERT_FALSE(whole.status.ok()) << reason;
  EXPECT_EQ(whole.status.error().code, code);
  EXPECT_NE(whole.status.error().message.find(reason), std::string::npos)
      << whole.status.error().message;
  EXPECT_EQ(whole.status.error().message.find('\n'), std::string::npos);
}

TEST(TraceFile, BadLinesAreCountedAndPastAShareTheRunStops) {
  TraceOptions options;
  const Whole few = ReadBytes(Lines(5000, 200), options);  // 0.5 %
  ASSERT_TRUE(few.status.ok()) << few.status.error().message;
  EXPECT_EQ(few.requests.size(), 4975U);
  EXPECT_EQ(few.report.bad, 25U);
  EXPECT_EQ(few.report.first_bad.size(), kMaxBadKept);
  EXPECT_EQ(few.report.first_bad.front().number, 200U);

  ExpectRefusal(ReadBytes(Lines(5000, 50), options), ErrorCode::kCorrupt,
                "line 50: 1 fields instead of");
  options.max_bad_per_million = 30'000;
  EXPECT_TRUE(ReadBytes(Lines(5000, 50), options).status.ok());
  options.max_bad_per_million = 0;
  ExpectRefusal(ReadBytes(Lines(5000, 200), options), ErrorCode::kCorrupt, "line 200: ");
}

TEST(TraceFile, AShortFileIsJudgedAtItsEnd) {
  ExpectRefusal(ReadBytes(Lines(10, 10)), ErrorCode::kCorrupt, "line 10: ");
}

TEST(TraceFile, TimeThatGoesBackIsBadUnlessAllowed) {
  const std::string text =
      "100000000,h,0,Write,0,4096,0\n50000000,h,0,Write,4096,4096,0\n110000000,h,0,Write,0,4096,"
      "0\n";
  TraceOptions options;
  ExpectRefusal(ReadBytes(text, options), ErrorCode::kCorrupt,
                "line 2: time goes back by 5.000000 s; --unordered takes");
  options.unordered = true;
  const Whole whole = ReadBytes(text, options);
  ASSERT_TRUE(whole.status.ok());
  EXPECT_EQ(whole.report.unordered, 1U);
  EXPECT_EQ(whole.requests[1].time_us, 0U);
  EXPECT_EQ(whole.requests[2].time_us, 1'000'000U);
}

TEST(TraceFile, ARequestPastTheEndOfTheVolumeIsBad) {
  TraceOptions options;
  options.end_bytes = 3 * 4096;
  ExpectRefusal(ReadBytes(Lines(5), options), ErrorCode::kCorrupt,
                "line 3: a write of 4096 bytes at 12288 goes past the end, 12288");
}

TEST(TraceFile, EmptyBinaryAndUnknownFilesAreNamed) {
  ExpectRefusal(ReadBytes(""), ErrorCode::kCorrupt, "it is empty");
  ExpectRefusal(ReadBytes("\n\n  \n# nothing\n", As(TraceFormat::kMsr)), ErrorCode::kCorrupt,
                "there is no request in it");
  std::string binary(5000, '\0');
  for (size_t i = 0; i < binary.size(); ++i) {
    binary[i] = static_cast<char>(i * 7919 >> 3);
  }
  ExpectRefusal(ReadBytes(binary), ErrorCode::kCorrupt, "it is binary and no trace");
  ExpectRefusal(ReadBytes(binary, As(TraceFormat::kSpc)), ErrorCode::kCorrupt,
                "it is binary, but spc is text");
  ExpectRefusal(ReadBytes("Dear reader,\nthis is a letter.\n"), ErrorCode::kCorrupt,
                "'Dear reader,', fits none of msr");
  ExpectRefusal(ReadBytes("1 2 3\n4 5 6\n"), ErrorCode::kCorrupt, "say what they are");
}

TEST(TraceFile, ALineWithoutEndIsBadButDoesNotStopTheRest) {
  TraceOptions options;
  options.max_bad_per_million = 500'000;
  const std::string text = Lines(2) + std::string(3'000'000, 'x') + "\n" + Lines(4);
  options.unordered = true;
  const Whole whole = ReadBytes(text, options);
  ASSERT_TRUE(whole.status.ok()) << whole.status.error().message;
  EXPECT_EQ(whole.requests.size(), 6U);
  EXPECT_EQ(whole.report.bad, 1U);
  EXPECT_EQ(whole.report.first_bad.front().number, 3U);
}

TEST(TraceFile, TheLastLineNeedsNoNewline) {
  std::string text = Lines(3);
  text.pop_back();
  EXPECT_EQ(ReadBytes(text).requests.size(), 3U);
}

TEST(TraceFile, TooManyVolumesAreBad) {
  std::string text;
  for (uint32_t i = 0; i <= kMaxTraceVolumes; ++i) {
    text += "0," + std::to_string(i) + ",0,Write,0,512,0\n";
  }
  const Whole whole = ReadBytes(text);
  EXPECT_EQ(whole.volumes.size(), kMaxTraceVolumes);
  EXPECT_EQ(whole.report.bad, 1U);
}

class Packing : public ::testing::TestWithParam<const char*> {};

TEST_P(Packing, PackedTracesReadAsPlainOnes) {
  const TempDir directory;
  const auto path = (directory.path() / "trace").string() + GetParam();
  const std::string text = Lines(40'000);
  auto sink = OpenByteSink(path, false);
  ASSERT_TRUE(sink.ok());
  for (size_t at = 0; at < text.size(); at += 100'003) {
    ASSERT_TRUE((*sink)->Write(std::string_view(text).substr(at, 100'003)).ok());
  }
  EXPECT_FALSE(std::filesystem::exists(path)) << "no half file under its name";
  ASSERT_TRUE((*sink)->Close().ok());
  const std::string packed = Contents(path);
  EXPECT_EQ(packed == text, *GetParam() == '\0');
  const Whole plain = ReadBytes(text);
  const Whole whole = ReadBytes(packed);
  ASSERT_TRUE(whole.status.ok()) << whole.status.error().message;
  EXPECT_EQ(whole.requests, plain.requests);
  EXPECT_EQ(ReadBytes(packed + packed, Unordered()).requests.size(), 80'000U)
      << "one packed file behind the other is one file";
  EXPECT_EQ(OpenByteSink(path, false).error().code, ErrorCode::kExists);
}

class Damage : public ::testing::TestWithParam<const char*> {};

TEST_P(Damage, ATruncatedFileSaysSoWhereverItWasCut) {
  const TempDir directory;
  const auto path = (directory.path() / "trace").string() + GetParam();
  {
    auto sink = OpenByteSink(path, false);
    ASSERT_TRUE(sink.ok());
    ASSERT_TRUE((*sink)->Write(Lines(3000)).ok());
    ASSERT_TRUE((*sink)->Close().ok());
  }
  const std::string packed = Contents(path);
  for (size_t size = 7; size < packed.size(); size += 1 + packed.size() / 97) {
    const Whole whole = ReadBytes(packed.substr(0, size));
    ASSERT_FALSE(whole.status.ok()) << size << " of " << packed.size();
    EXPECT_EQ(whole.status.error().code, ErrorCode::kCorrupt);
    EXPECT_NE(whole.status.error().message.find("ends too early"), std::string::npos)
        << whole.status.error().message;
  }
}

TEST_P(Damage, IsFound) {
  const TempDir directory;
  const auto path = (directory.path() / "trace").string() + GetParam();
  {
    auto sink = OpenByteSink(path, false);
    ASSERT_TRUE((*sink)->Write(Lines(3000)).ok());
    ASSERT_TRUE((*sink)->Close().ok());
  }
  std::string packed = Contents(path);
  packed[packed.size() / 2] = static_cast<char>(packed[packed.size() / 2] ^ 0x40);
  const Whole whole = ReadBytes(packed);
  ASSERT_FALSE(whole.status.ok());
  EXPECT_EQ(whole.status.error().code, ErrorCode::kCorrupt);
}

INSTANTIATE_TEST_SUITE_P(Kinds, Packing, ::testing::Values("", ".gz", ".xz", ".zst"),
                         [](const auto& param_info) {
                           return *param_info.param == '\0' ? "plain"
                                                            : std::string(param_info.param + 1);
                         });

INSTANTIATE_TEST_SUITE_P(Kinds, Damage, ::testing::Values(".gz", ".xz", ".zst"),
                         [](const auto& param_info) { return std::string(param_info.param + 1); });

TEST(TraceFile, OpenNamesWhatIsNotThere) {
  const TempDir directory;
  const auto missing = OpenTrace(directory.path() / "nothing", TraceOptions{});
  ASSERT_FALSE(missing.ok());
  EXPECT_EQ(missing.error().code, ErrorCode::kNotFound);
  EXPECT_NE(missing.error().message.find("nothing: there is no such file"), std::string::npos);
  const auto folder = OpenTrace(directory.path(), TraceOptions{});
  ASSERT_FALSE(folder.ok());
  EXPECT_EQ(folder.error().code, ErrorCode::kInvalidArgument);
}

}  // namespace
}  // namespace eplog
