// Names of volumes that were deleted or replaced while open: nobody else's, and told as what they are.
#include "engine/core/volume_names.h"

#include <gtest/gtest.h>

#include <string>

#include "eplog/array.h"

namespace eplog {
namespace {

Volume Named(uint32_t id, const std::string& name) {
  Volume volume;
  volume.id = VolumeId(id);
  volume.name = name;
  return volume;
}

TEST(HiddenVolumes, HaveANameOfTheirOwnThatBeginsAsNoUsersMay) {
  const std::string name = HiddenName(VolumeId(17));
  EXPECT_TRUE(name.starts_with(kReservedVolumePrefix));
  EXPECT_NE(name.find("17"), std::string::npos);
  EXPECT_NE(name, HiddenName(VolumeId(18)));
  EXPECT_TRUE(IsHidden(Named(17, name)));
}

TEST(HiddenVolumes, AreThoseWithBothEndsOfSuchAName) {
  const std::string name = HiddenName(VolumeId(17));
  EXPECT_FALSE(IsHidden(Named(17, "v")));
  EXPECT_FALSE(IsHidden(Named(17, name.substr(0, name.size() - 1))));
  EXPECT_FALSE(IsHidden(Named(17, name.substr(std::string(kReservedVolumePrefix).size()))));
}

TEST(HiddenVolumes, AreToldAsWhatTheyAreAndOthersByTheirName) {
  EXPECT_EQ(LabelOf(Named(17, HiddenName(VolumeId(17)))), "(deleted/replaced while open, #17)");
  EXPECT_EQ(LabelOf(Named(17, "v")), "v");
}

}  // namespace
}  // namespace eplog
