// What is written is read again as it was, as far as the format has words for it.
#include "trace/writer.h"

#include <gtest/gtest.h>

#include "base/random.h"
#include "tests/trace/trace_util.h"

namespace eplog {
namespace {

using trace_test::ReadBytes;
using trace_test::Request;
using trace_test::Whole;

struct Format {
  TraceFormat format;
  bool volumes, flushes, trims, fua, times;
};

std::vector<TraceRequest> Sample(const Format& format, uint64_t seed) {
  Random random(seed);
  std::vector<TraceRequest> requests;
  uint64_t time_us = 0;
  for (int i = 0; i < 500; ++i) {
    TraceRequest request;
    request.time_us = format.times ? time_us : 0;
    time_us += random.Below(3) == 0 ? 0 : random.Below(2'000'000);
    // Volumes appear in their order, as a reader numbers them.
    request.volume =
        format.volumes && i > 0 ? static_cast<uint32_t>(random.Below(i > 1 ? 3 : 2)) : 0;
    request.volume = i == 1 && format.volumes ? 1 : request.volume;
    request.volume = i == 2 && format.volumes ? 2 : request.volume;
    request.op = static_cast<TraceOp>(random.Below(kTraceOps));
    if ((request.op == TraceOp::kFlush && !format.flushes) ||
        (request.op == TraceOp::kTrim && !format.trims)) {
      request.op = TraceOp::kWrite;
    }
    if (request.op != TraceOp::kFlush) {
      request.offset_bytes = random.Below(uint64_t{1} << 40) * 512;
      request.length_bytes = random.Between(1, 2048) * 512;
    }
    request.fua = format.fua && request.op == TraceOp::kWrite && random.OneIn(4);
    requests.push_back(request);
  }
  return requests;
}

class RoundTrip : public ::testing::TestWithParam<Format> {};

TEST_P(RoundTrip, ComesBackAsItWas) {
  const Format& format = GetParam();
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    const auto requests = Sample(format, seed);
    const auto writer = MakeTraceWriter(format.format, ColumnLayout{});
    std::string text;
    for (const TraceRequest& request : requests) {
      ASSERT_TRUE(writer->Add(request, {"a.0", "a.1", "odd name,"}, text).ok());
    }
    writer->End(text);
    EXPECT_EQ(writer->report().requests, requests.size());
    EXPECT_EQ(writer->report().dropped + writer->report().widened + writer->report().fua_lost, 0U);
    TraceOptions options;
    if (format.format == TraceFormat::kColumns) {
      options.format = TraceFormat::kColumns;
      options.columns = DefaultColumns();
    }
    const Whole whole = ReadBytes(text, options);
    ASSERT_TRUE(whole.status.ok()) << whole.status.error().message;
    EXPECT_EQ(whole.format, TraceFormatName(format.format)) << "detected from its content";
    ASSERT_EQ(whole.requests.size(), requests.size());
    for (size_t i = 0; i < requests.size(); ++i) {
      ASSERT_EQ(whole.requests[i], requests[i]) << i;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Formats, RoundTrip,
    ::testing::Values(Format{TraceFormat::kMsr, true, false, false, false, true},
                      Format{TraceFormat::kSpc, true, false, false, false, true},
                      Format{TraceFormat::kFio2, true, true, true, false, true},
                      Format{TraceFormat::kFio3, true, true, true, false, true},
                      Format{TraceFormat::kBlkparse, true, true, true, true, true},
                      Format{TraceFormat::kVscsi1, false, true, false, false, true},
                      Format{TraceFormat::kVscsi2, false, true, false, false, true},
                      Format{TraceFormat::kNbd, false, true, true, true, false},
                      Format{TraceFormat::kColumns, true, true, true, false, true}),
    [](const auto& param_info) { return std::string(TraceFormatName(param_info.param.format)); });

TEST(TraceWriter, WhatAFormatCannotSayIsCounted) {
  const auto msr = MakeTraceWriter(TraceFormat::kMsr, ColumnLayout{});
  std::string text;
  ASSERT_TRUE(msr->Add(Request(0, TraceOp::kFlush, 0, 0), {"d"}, text).ok());
  ASSERT_TRUE(msr->Add(Request(0, TraceOp::kWrite, 0, 512, 0, true), {"d"}, text).ok());
  EXPECT_EQ(text, "0,d,0,Write,0,512,0\n");
  EXPECT_EQ(msr->report().dropped, 1U);
  EXPECT_EQ(msr->report().fua_lost, 1U);
  const auto vscsi = MakeTraceWriter(TraceFormat::kVscsi1, ColumnLayout{});
  ASSERT_TRUE(vscsi->Add(Request(0, TraceOp::kWrite, 0, 512), {"a", "b"}, text).ok());
  const Status second = vscsi->Add(Request(0, TraceOp::kWrite, 0, 512, 1), {"a", "b"}, text);
  ASSERT_FALSE(second.ok());
  EXPECT_NE(second.error().message.find("--merge"), std::string::npos);
}

TEST(TraceWriter, UnitsWidenAndNeverLoseBytes) {
  Random random(3);
  const auto layout = *ParseColumnLayout("lba512,pages4k,op");
  for (int i = 0; i < 1000; ++i) {
    const TraceRequest request =
        Request(0, TraceOp::kWrite, random.Below(100'000), random.Between(1, 20'000));
    for (const TraceFormat format : {TraceFormat::kSpc, TraceFormat::kColumns}) {
      const auto writer = MakeTraceWriter(format, layout);
      std::string text;
      ASSERT_TRUE(writer->Add(request, {"0"}, text).ok());
      TraceOptions options;
      options.format = format;
      options.columns = layout;
      const Whole whole = ReadBytes(text, options);
      ASSERT_EQ(whole.requests.size(), 1U);
      EXPECT_LE(whole.requests[0].offset_bytes, request.offset_bytes);
      EXPECT_GE(whole.requests[0].end_bytes(), request.end_bytes());
      EXPECT_EQ(writer->report().widened != 0, !(whole.requests[0] == request));
    }
  }
}

TEST(TraceWriter, NbdCutsLargeTrims) {
  const auto nbd = MakeTraceWriter(TraceFormat::kNbd, ColumnLayout{});
  std::string text;
  const uint64_t length = (uint64_t{5} << 30) + 512;
  ASSERT_TRUE(nbd->Add(Request(0, TraceOp::kTrim, 4096, length), {"d"}, text).ok());
  uint64_t at = 4096;
  for (const TraceRequest& piece : ReadBytes(text).requests) {
    EXPECT_EQ(piece.offset_bytes, at);
    EXPECT_EQ(piece.op, TraceOp::kTrim);
    at += piece.length_bytes;
  }
  EXPECT_EQ(at, 4096 + length);
  ASSERT_TRUE(nbd->Add(Request(0, TraceOp::kTrim, 0, kMaxTraceOffsetBytes), {"d"}, text).ok());
  EXPECT_EQ(nbd->report().dropped, 1U);
}

}  // namespace
}  // namespace eplog
