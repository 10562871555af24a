// Each format by a few lines of it: what is taken, what is refused and why.
#include <gtest/gtest.h>

#include "tests/trace/trace_util.h"

namespace eplog {
namespace {

using trace_test::ReadBytes;
using trace_test::Request;
using trace_test::Whole;

TraceOptions As(TraceFormat format) {
  TraceOptions options;
  options.format = format;
  options.max_bad_per_million = 1'000'000;
  return options;
}

TraceOptions Columns(const char* text) {
  TraceOptions options = As(TraceFormat::kColumns);
  const auto layout = ParseColumnLayout(text);
  EXPECT_TRUE(layout.ok()) << layout.error().message;
  options.columns = *layout;
  return options;
}

void ExpectBad(const Whole& whole, uint64_t number, const char* reason) {
  ASSERT_EQ(whole.report.first_bad.size(), 1U) << reason;
  EXPECT_EQ(whole.report.first_bad.front().number, number) << reason;
  EXPECT_NE(whole.report.first_bad.front().reason.find(reason), std::string::npos)
      << whole.report.first_bad.front().reason;
}

TEST(MsrDecoder, TakesHostsAndDisksAndTimesFromTheFirst) {
  const Whole whole = ReadBytes(
      "Timestamp,Hostname,DiskNumber,Type,Offset,Size,ResponseTime\r\n"
      "128166372003061629,usr,0,Write,2517696,512,1331\r\n"
      "128166372003071630,usr,1,Read,4096,8192,99\r\n"
      "\n"
      "128166372013061629,usr,0,Write,0,4096,1\n");
  ASSERT_TRUE(whole.status.ok()) << whole.status.error().message;
  EXPECT_EQ(whole.format, "msr");
  EXPECT_EQ(whole.volumes, (std::vector<std::string>{"usr.0", "usr.1"}));
  EXPECT_EQ(whole.requests,
            (std::vector<TraceRequest>{Request(0, TraceOp::kWrite, 2517696, 512),
                                       Request(1001, TraceOp::kRead, 4096, 8192, 1),
                                       Request(1'000'000, TraceOp::kWrite, 0, 4096)}));
}

TEST(MsrDecoder, NamesWhatIsWrong) {
  const std::pair<const char*, const char*> cases[] = {
      {"1,usr,0,Write,2517696\n", "5 fields instead of"},
      {"x,usr,0,Write,0,512,1\n", "'x' is no timestamp"},
      {"1,usr,0,Erase,0,512,1\n", "'Erase' is neither Read nor Write"},
      {"1,usr,0,Write,-1,512,1\n", "'-1' is no offset"},
      {"1,usr,0,Write,99999999999999999999,512,1\n", "is no offset"},
      {"1,usr,0,Write,0,0x10,1\n", "'0x10' is no size"},
      {"1,usr,0,Write,0,0,1\n", "a write of no bytes"},
      {"1,usr,0,Write,0,1073741825,1\n", "is absurd: the most is 1 GiB"},
      {"1,usr,0,Write,1152921504606846976,1,1\n", "goes past the end"},
      {"1,usr,0,Write,18446744073709551615,512,1\n", "goes past the end"}};
  for (const auto& [line, reason] : cases) {
    const std::string text = std::string("1,usr,0,Read,0,512,1\n") + line;
    const Whole whole = ReadBytes(text, As(TraceFormat::kMsr));
    EXPECT_TRUE(whole.status.ok()) << whole.status.error().message;
    EXPECT_EQ(whole.requests.size(), 1U) << line;
    ExpectBad(whole, 2, reason);
  }
}

TEST(SpcDecoder, UnitsAreSectorsBytesAndSeconds) {
  const Whole whole = ReadBytes("0,303567,3584,w,0.000000\n10,55590,3072,R,0.026214,extra\n");
  ASSERT_TRUE(whole.status.ok()) << whole.status.error().message;
  EXPECT_EQ(whole.format, "spc");
  EXPECT_EQ(whole.volumes, (std::vector<std::string>{"0", "10"}));
  EXPECT_EQ(whole.requests,
            (std::vector<TraceRequest>{Request(0, TraceOp::kWrite, 303567 * 512, 3584),
                                       Request(26214, TraceOp::kRead, 55590 * 512, 3072, 1)}));
  ExpectBad(ReadBytes("0,1,512,w,0\n0,1,512,x,1\n", As(TraceFormat::kSpc)), 2,
            "'x' is neither r nor w");
  ExpectBad(ReadBytes("0,1,512,w,0\n0,99999999999999999,512,w,1\n", As(TraceFormat::kSpc)), 2,
            "is no LBA");
}

TEST(FioDecoder, Version2WaitsVersion3HasTimes) {
  const Whole two = ReadBytes(
      "fio version 2 iolog\n/dev/sda add\n/dev/sda open\n/dev/sda write 0 4096\n"
      "/dev/sda wait 1500 0\n/dev/sda sync 0 0\n/dev/sda trim 8192 4096\n/dev/sda close\n");
  ASSERT_TRUE(two.status.ok()) << two.status.error().message;
  EXPECT_EQ(two.format, "fio2");
  EXPECT_EQ(two.requests, (std::vector<TraceRequest>{Request(0, TraceOp::kWrite, 0, 4096),
                                                     Request(1500, TraceOp::kFlush, 0, 0),
                                                     Request(1500, TraceOp::kTrim, 8192, 4096)}));
  const Whole three = ReadBytes(
      "fio version 3 iolog\n19 /tmp/x add\n222 /tmp/x open\n242 /tmp/x write 0 4096\n"
      "286 /tmp/x datasync 28672 0\n290 /tmp/x read 45056 4096\n");
  ASSERT_TRUE(three.status.ok()) << three.status.error().message;
  EXPECT_EQ(three.format, "fio3");
  EXPECT_EQ(three.requests, (std::vector<TraceRequest>{Request(0, TraceOp::kWrite, 0, 4096),
                                                       Request(44, TraceOp::kFlush, 0, 0),
                                                       Request(48, TraceOp::kRead, 45056, 4096)}));
  ExpectBad(
      ReadBytes("fio version 3 iolog\n1 f write 0 4096\n1 f erase 0 1\n", As(TraceFormat::kFio3)),
      3, "'erase' is no action");
  ExpectBad(
      ReadBytes("fio version 3 iolog\n1 f write 0 4096\n1 f wait 5\n", As(TraceFormat::kFio3)), 3,
      "belongs to version 2");
}

constexpr char kBlkparse[] =
    "  8,0    3        1     0.000000000   697  G   W 223490 + 8 [kjournald]\n"
    "  8,0    3        2     0.000001829   697  Q   W 223490 + 8 [kjournald]\n"
    "  8,0    3        3     0.000002829   697  P   N [kjournald]\n"
    "  8,0    1       11     0.010000000   697  Q FWFS 64 + 8 [x]\n"
    "  8,16   1       12     0.020000000   697  Q  RA 128 + 16 [x]\n"
    "  8,16   1       13     0.020000500   697  Q  FN [x]\n"
    "  8,16   1       14     0.030000000   697  Q   D 4096 + 2048 [x]\n"
    "  8,16   1       15     0.030000000   697  C   D 4096 + 2048 [0]\n"
    "CPU0 (sda):\n"
    " Reads Queued:           0,        0KiB\t Writes Queued:           0,        0KiB\n";

TEST(BlkparseDecoder, OneActionStandsForRequests) {
  const Whole whole = ReadBytes(kBlkparse);
  ASSERT_TRUE(whole.status.ok()) << whole.status.error().message;
  EXPECT_EQ(whole.format, "blkparse");
  EXPECT_EQ(whole.volumes, (std::vector<std::string>{"8,0", "8,16"}));
  EXPECT_EQ(whole.requests,
            (std::vector<TraceRequest>{Request(0, TraceOp::kWrite, 223490 * 512, 4096),
                                       Request(9999, TraceOp::kFlush, 0, 0),
                                       Request(9999, TraceOp::kWrite, 64 * 512, 4096, 0, true),
                                       Request(19999, TraceOp::kRead, 128 * 512, 8192, 1),
                                       Request(19999, TraceOp::kFlush, 0, 0, 1),
                                       Request(29999, TraceOp::kTrim, 4096 * 512, 1 << 20, 1)}));
  TraceOptions completed = As(TraceFormat::kBlkparse);
  completed.blkparse_action = 'C';
  EXPECT_EQ(ReadBytes(kBlkparse, completed).requests.size(), 1U);
}

TEST(ColumnDecoder, LayoutsSayWhatColumnsMean) {
  const Whole fin = ReadBytes("26.214000\t0\t303574\t1\t0\n78.643 0 55596 2 1\n",
                              Columns("time_ms,disk,lba512,pages4k,op:0=w"));
  EXPECT_EQ(fin.requests,
            (std::vector<TraceRequest>{Request(0, TraceOp::kWrite, 303574 * 512, 4096),
                                       Request(52429, TraceOp::kRead, 55596 * 512, 8192)}));
  const Whole words = ReadBytes("w,4096,a,512\nRead,0,b,1024\nFLUSH,0,a,0\ndiscard,0,a,4096\n",
                                Columns("op,offset,disk,size"));
  EXPECT_EQ(words.requests,
            (std::vector<TraceRequest>{
                Request(0, TraceOp::kWrite, 4096, 512), Request(0, TraceOp::kRead, 0, 1024, 1),
                Request(0, TraceOp::kFlush, 0, 0), Request(0, TraceOp::kTrim, 0, 4096)}));
  const Whole bare = ReadBytes("7 junk 1\n", Columns("lba4k,skip,sectors512"));
  EXPECT_EQ(bare.requests, (std::vector<TraceRequest>{Request(0, TraceOp::kWrite, 7 * 4096, 512)}));
  ExpectBad(ReadBytes("w 0 512\nz 0 512\n", Columns("op:w=w;r=r,offset,size")), 2,
            "'z' is no operation");
  ExpectBad(ReadBytes("0 512\n0\n", Columns("offset,size")), 2, "1 columns instead of 2");
}

TEST(ColumnLayout, RefusalsNameTheColumn) {
  const std::pair<const char*, const char*> cases[] = {
      {"time_ms,lba512", "need one for the place"},
      {"time,offset,size", "there is no column 'time'; there are:"},
      {"offset,size,lba0", "there is no column 'lba0'"},
      {"offset,size,size", "says again"},
      {"offset,size,op:w", "does not say which operation"},
      {"offset,size,op:0=x", "does not say which operation"},
      {"", "need one for the place"}};
  for (const auto& [text, reason] : cases) {
    const auto layout = ParseColumnLayout(text);
    ASSERT_FALSE(layout.ok()) << text;
    EXPECT_EQ(layout.error().code, ErrorCode::kInvalidArgument);
    EXPECT_NE(layout.error().message.find(reason), std::string::npos) << layout.error().message;
  }
}

std::string Little(uint64_t value, int width) {
  std::string out;
  for (int i = 0; i < width; ++i) {
    out += static_cast<char>(value >> (8 * i));
  }
  return out;
}
std::string Big(uint64_t value, int width) {
  std::string out = Little(value, width);
  return {out.rbegin(), out.rend()};
}

std::string Vscsi1(uint16_t command, uint32_t bytes, uint64_t sector, uint64_t time_us) {
  return Little(7, 4) + Little(bytes, 4) + Little(1, 4) + Little(command, 2) + Little(0x100, 2) +
         Little(sector, 8) + Little(time_us, 8);
}

TEST(VscsiDecoder, BothVersions) {
  const std::string one = Vscsi1(0x2A, 512, 10, 1000) + Vscsi1(0x28, 4096, 8, 1500) +
                          Vscsi1(0x12, 36, 0, 1600) + Vscsi1(0x35, 0, 0, 1700);
  const Whole first = ReadBytes(one);
  ASSERT_TRUE(first.status.ok()) << first.status.error().message;
  EXPECT_EQ(first.format, "vscsi1");
  EXPECT_EQ(first.report.other, 1U) << "an inquiry is no request";
  EXPECT_EQ(first.requests, (std::vector<TraceRequest>{Request(0, TraceOp::kWrite, 5120, 512),
                                                       Request(500, TraceOp::kRead, 4096, 4096),
                                                       Request(700, TraceOp::kFlush, 0, 0)}));
  const std::string two = Little(0x8A, 2) + Little(0x200, 2) + Little(1, 4) + Little(8192, 4) +
                          Little(2, 4) + Little(16, 8) + Little(55, 8) + Little(9, 8);
  const Whole second = ReadBytes(two);
  ASSERT_TRUE(second.status.ok()) << second.status.error().message;
  EXPECT_EQ(second.format, "vscsi2");
  EXPECT_EQ(second.requests, (std::vector<TraceRequest>{Request(0, TraceOp::kWrite, 8192, 8192)}));
  ExpectBad(ReadBytes(one + two.substr(0, 32), As(TraceFormat::kVscsi1)), 5, "it says version 0");
}

TEST(VscsiDecoder, ATruncatedRecordIsNamed) {
  std::string cut;
  for (uint64_t i = 0; i < 5; ++i) {
    cut += Vscsi1(0x2A, 512, 10, i);
  }
  cut.resize(4 * 32 + 18);
  ExpectBad(ReadBytes(cut, As(TraceFormat::kVscsi1)), 5, "ends 18 bytes into a record of 32");
  const Whole strict = ReadBytes(cut);
  ASSERT_FALSE(strict.status.ok());
  EXPECT_NE(strict.status.error().message.find("record 5: the file ends"), std::string::npos)
      << strict.status.error().message;
}

std::string Nbd(uint32_t type, uint64_t offset, uint32_t length) {
  return Big(0x25609513, 4) + Big(type, 4) + Big(1, 8) + Big(offset, 8) + Big(length, 4) +
         Big(0x67446698, 4) + Big(0, 4) + Big(1, 8);
}

TEST(NbdDecoder, FlagsFlushesAndTrims) {
  const std::string log = Nbd(1, 4096, 1024) + Nbd(0x10001, 0, 512) + Nbd(3, 0, 0) +
                          Nbd(4, 8192, 4096) + Nbd(0, 0, 512) + Nbd(2, 0, 0).substr(0, 28);
  const Whole whole = ReadBytes(log);
  ASSERT_TRUE(whole.status.ok()) << whole.status.error().message;
  EXPECT_EQ(whole.format, "nbd");
  EXPECT_EQ(whole.report.other, 1U);
  EXPECT_EQ(whole.requests,
            (std::vector<TraceRequest>{
                Request(0, TraceOp::kWrite, 4096, 1024),
                Request(0, TraceOp::kWrite, 0, 512, 0, true), Request(0, TraceOp::kFlush, 0, 0),
                Request(0, TraceOp::kTrim, 8192, 4096), Request(0, TraceOp::kRead, 0, 512)}));
}

TEST(NbdDecoder, FindsItsWayBehindGarbage) {
  const std::string log = Nbd(1, 4096, 1024) + "garbage" + Nbd(1, 0, 512);
  const Whole whole = ReadBytes(log, As(TraceFormat::kNbd));
  EXPECT_EQ(whole.requests.size(), 2U);
  ExpectBad(whole, 3, "begins neither a request nor a reply");
}

}  // namespace
}  // namespace eplog
