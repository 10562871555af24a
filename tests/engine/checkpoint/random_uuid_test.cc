// UUIDs of arrays and members: no part of one tells another part.
#include <gtest/gtest.h>

#include <array>
#include <vector>

#include "base/random.h"
#include "engine/checkpoint/superblocks.h"

namespace eplog {
namespace {

TEST(RandomUuidBytes, NoneFollowsFromAnother) {
  Random random(7);
  std::vector<Uuid> uuids;
  for (int i = 0; i < 200; ++i) {
    uuids.push_back(RandomUuid(random));
  }
  // The low half of each byte is random, in those two as well that say version and variant.
  constexpr std::byte kLowHalf{0x0F};
  for (size_t a = 0; a < uuids[0].size(); ++a) {
    for (size_t b = 0; b < a; ++b) {
      bool differ = false;
      for (const Uuid& uuid : uuids) {
        const std::byte here = (uuid[a] ^ uuid[b]) & kLowHalf;
        const std::byte first = (uuids[0][a] ^ uuids[0][b]) & kLowHalf;
        differ = differ || here != first;
      }
      EXPECT_TRUE(differ) << a << " and " << b;
    }
  }
}

}  // namespace
}  // namespace eplog
