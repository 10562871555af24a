// Names of hidden volumes as they lie on disk: an array that another version of this program left
// with some is read all the same.
#include <gtest/gtest.h>

#include <string>

#include "engine/core/volume_names.h"

namespace eplog {
namespace {

// docs/design.md: reserved at its beginning, a control character at its end.
TEST(HiddenVolumesOnDisk, AreNamedAsTheyAlwaysWere) {
  EXPECT_EQ(HiddenName(VolumeId(17)), std::string(".eplog-deleted-17\x7F"));
  Volume volume;
  volume.id = VolumeId(3);
  volume.name = ".eplog-deleted-3\x7F";
  EXPECT_TRUE(IsHidden(volume));
  EXPECT_EQ(LabelOf(volume), "(deleted/replaced while open, #3)");
  // Names of earlier versions that begin alike are those of volumes like any other.
  for (const char* name : {".eplog-deleted-3", ".eplog-deleted-3\x1F", "v\x7F"}) {
    volume.name = name;
    EXPECT_FALSE(IsHidden(volume));
    EXPECT_EQ(LabelOf(volume), name);
  }
}

}  // namespace
}  // namespace eplog
