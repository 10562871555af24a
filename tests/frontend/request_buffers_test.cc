// Memory for requests: whose it is, where it lies, and how much of it stays.
#include "frontend/request_buffers.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/prctl.h>

#include <cstdint>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

namespace eplog {
namespace {

constexpr size_t kPage = 4096;
constexpr size_t kThin = size_t{128} << 10;

// Whether the page that this byte lies in is backed by memory.
bool IsThere(const std::byte* byte) {
  unsigned char there = 0;
  auto* page = reinterpret_cast<void*>(reinterpret_cast<uintptr_t>(byte) / kPage * kPage);
  EXPECT_EQ(::mincore(page, kPage, &there), 0);
  return (there & 1) != 0;
}

// In pages, not in larger pieces: what one touches is not memory of its neighbour.
class RequestMemory : public testing::Test {
 protected:
  void SetUp() override { ::prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0); }
  void TearDown() override { ::prctl(PR_SET_THP_DISABLE, 0, 0, 0, 0); }
};

TEST(RequestBuffers, AreAsManyAsThereAre) {
  RequestBuffers buffers(3);
  EXPECT_EQ(buffers.free_slots(), 3U);
  std::vector<RequestBuffer> taken;
  for (size_t left = 3; left-- > 0;) {
    taken.push_back(buffers.TryGet());
    EXPECT_TRUE(taken.back());
    EXPECT_EQ(buffers.free_slots(), left);
  }
  EXPECT_FALSE(buffers.TryGet());
  taken.pop_back();
  EXPECT_EQ(buffers.free_slots(), 1U);
  EXPECT_TRUE(buffers.TryGet());
  EXPECT_EQ(buffers.free_slots(), 1U);
}

TEST(RequestBuffers, LieApartOnPages) {
  RequestBuffers buffers(3);
  std::vector<RequestBuffer> taken;
  for (int i = 0; i < 3; ++i) {
    taken.push_back(buffers.TryGet());
    const RequestBuffer& buffer = taken.back();
    EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer.payload()) % kPage, 0U);
    EXPECT_EQ(buffer.payload() - buffer.message(), 80) << "after the headers of a write";
    // All that a message may take.
    std::memset(buffer.message(), i, RequestBuffer::kMessageBytes);
  }
  for (int i = 0; i < 3; ++i) {
    const std::byte* message = taken[static_cast<size_t>(i)].message();
    EXPECT_EQ(message[0], static_cast<std::byte>(i));
    EXPECT_EQ(message[RequestBuffer::kMessageBytes - 1], static_cast<std::byte>(i));
  }
}

TEST(RequestBuffers, TheOneUsedLastComesFirst) {
  RequestBuffers buffers(3);
  RequestBuffer first = buffers.TryGet();
  RequestBuffer second = buffers.TryGet();
  const std::byte* const of_first = first.payload();
  const std::byte* const of_second = second.payload();
  second = RequestBuffer();
  first = RequestBuffer();
  first = buffers.TryGet();
  EXPECT_EQ(first.payload(), of_first);
  second = buffers.TryGet();
  EXPECT_EQ(second.payload(), of_second);
}

TEST(RequestBuffers, AMovedOneIsGivenBackOnce) {
  RequestBuffers buffers(2);
  {
    RequestBuffer first = buffers.TryGet();
    const std::byte* const payload = first.payload();
    RequestBuffer second = std::move(first);
    EXPECT_EQ(second.payload(), payload);
    EXPECT_EQ(buffers.free_slots(), 1U);
  }
  EXPECT_EQ(buffers.free_slots(), 2U);
}

// Whoever still had one would write into memory of somebody else.
TEST(RequestBuffersDeathTest, NoneIsLeftOutWhenTheyGo) {
  const auto one_is_out = [] {
    auto buffers = std::make_unique<RequestBuffers>(2);
    const RequestBuffer taken = buffers->TryGet();
    buffers.reset();
  };
  EXPECT_DEATH(one_is_out(), "a request outlives its buffers");
}

// So that serving does not begin by asking for memory.
TEST_F(RequestMemory, TheFirstOfThemAreThereFromTheStart) {
  RequestBuffers buffers(40);
  std::vector<RequestBuffer> taken;
  size_t there = 0;
  for (int i = 0; i < 40; ++i) {
    taken.push_back(buffers.TryGet());
    const RequestBuffer& buffer = taken.back();
    const bool whole = IsThere(buffer.message()) && IsThere(buffer.payload() + kThin - 1);
    EXPECT_FALSE(IsThere(buffer.payload() + kThin)) << "what is rarely used is not";
    there += whole ? 1 : 0;
    EXPECT_EQ(whole, there == static_cast<size_t>(i) + 1) << "those that are used first";
  }
  if (there == 0) {
    GTEST_SKIP() << "the kernel gives no memory in advance";
  }
  EXPECT_EQ(there, 32U);
}

// Which of these many have kept the memory of a large request once all were given back.
size_t Kept(RequestBuffers& buffers, size_t count, size_t touched_bytes) {
  std::vector<const std::byte*> touched;
  {
    std::vector<RequestBuffer> taken;
    for (size_t i = 0; i < count; ++i) {
      taken.push_back(buffers.TryGet());
      std::memset(taken.back().payload(), 1, RequestBuffer::kPayloadBytes);
      taken.back().Touched(touched_bytes);
      taken.back().Touched(touched_bytes);
      touched.push_back(taken.back().payload());
    }
  }
  size_t kept = 0;
  for (const std::byte* payload : touched) {
    EXPECT_TRUE(IsThere(payload)) << "what every request uses stays";
    EXPECT_TRUE(IsThere(payload + kThin - 1));
    const bool first = IsThere(payload + kThin);
    EXPECT_EQ(first, IsThere(payload + RequestBuffer::kPayloadBytes - 1));
    kept += first ? 1 : 0;
  }
  return kept;
}

TEST_F(RequestMemory, OfRareLargeRequestsOnlySomeStay) {
  RequestBuffers buffers(100);
  EXPECT_EQ(Kept(buffers, 100, kThin + 1), 64U);
  EXPECT_EQ(Kept(buffers, 100, kThin + 1), 64U) << "nor do they come to be more";
  EXPECT_EQ(buffers.free_slots(), 100U);
}

TEST_F(RequestMemory, AFewLargeRequestsKeepTheirMemory) {
  RequestBuffers buffers(100);
  EXPECT_EQ(Kept(buffers, 64, RequestBuffer::kPayloadBytes), 64U);
  EXPECT_EQ(Kept(buffers, 64, RequestBuffer::kPayloadBytes), 64U);
}

// Who says that he used little is believed.
TEST_F(RequestMemory, SmallRequestsGiveNothingBack) {
  RequestBuffers buffers(100);
  EXPECT_EQ(Kept(buffers, 100, kThin), 100U);
}

}  // namespace
}  // namespace eplog
