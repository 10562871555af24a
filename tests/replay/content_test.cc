#include "replay/content.h"

#include <gtest/gtest.h>

#include <cstring>

#include "base/random.h"
#include "base/types.h"

namespace eplog {
namespace {

constexpr uint64_t kSize = 64 * kBlockBytes;

// Against a plain copy of all bytes.
TEST(Content, KnowsWhatIsThereAfterAnyWrites) {
  Random random(1);
  Content content(kSize);
  std::vector<std::byte> volume(kSize);
  for (int i = 0; i < 2000; ++i) {
    const uint64_t sectors = kSize / kSectorBytes;
    const uint64_t first = random.Below(sectors);
    const uint64_t count = 1 + random.Below(std::min<uint64_t>(sectors - first, 40));
    const std::span range = std::span(volume).subspan(first * kSectorBytes, count * kSectorBytes);
    content.Write(first * kSectorBytes, range);
    EXPECT_EQ(content.Check(0, volume), "");
  }
}

TEST(Content, NoticesAnyWrongByte) {
  Content content(kSize);
  std::vector<std::byte> volume(kSize);
  content.Write(0, volume);
  content.Write(kBlockBytes + kSectorBytes,
                std::span(volume).subspan(kBlockBytes + kSectorBytes, 3 * kSectorBytes));
  Random random(2);
  for (uint32_t i = 0; i < 3000; ++i) {
    const uint64_t at = i < 100 ? kBlockBytes + i * 40U : random.Below(kSize);
    volume[at] ^= std::byte{1};
    const std::string wrong = content.Check(0, volume);
    EXPECT_NE(wrong.find("wrong bytes at"), std::string::npos) << at;
    volume[at] ^= std::byte{1};
  }
}

TEST(Content, NoticesOldAndMisplacedPages) {
  Content content(kSize);
  std::vector<std::byte> volume(kSize);
  content.Write(0, volume);
  const std::vector<std::byte> old = volume;
  content.Write(5 * kBlockBytes, std::span(volume).subspan(5 * kBlockBytes, kBlockBytes));
  EXPECT_EQ(content.Check(0, volume), "");
  EXPECT_NE(content.Check(0, old), "") << "a lost write";
  std::vector<std::byte> swapped = volume;
  std::memcpy(&swapped[7 * kBlockBytes], &volume[8 * kBlockBytes], kBlockBytes);
  EXPECT_NE(content.Check(0, swapped), "") << "a page of the same write";
  std::vector<std::byte> zeros(kBlockBytes);
  EXPECT_NE(content.Check(9 * kBlockBytes, zeros), "");
}

TEST(Content, NeverWrittenIsZerosAndForgottenIsAnything) {
  Content content(kSize);
  std::vector<std::byte> page(kBlockBytes);
  EXPECT_EQ(content.Check(0, page), "");
  page[17] = std::byte{1};
  EXPECT_NE(content.Check(0, page), "");
  content.Forget(0, kBlockBytes);
  EXPECT_EQ(content.Check(0, page), "");
  EXPECT_NE(content.Check(kBlockBytes, page), "");
}

}  // namespace
}  // namespace eplog
