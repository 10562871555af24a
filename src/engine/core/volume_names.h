// What a volume is called that has no name any more: it was deleted, or replaced, while somebody
// still used it.
#pragma once

#include <string>

#include "metadata/volume_table.h"

namespace eplog {

// The name that the metadata know it by. No one's who has a name, since control characters are
// refused in those; earlier versions take what begins like this for one that was deleted while
// open, which it is.
[[nodiscard]] std::string HiddenName(VolumeId id);
[[nodiscard]] bool IsHidden(const Volume& volume);
// What people are told it is called.
[[nodiscard]] std::string LabelOf(const Volume& volume);

}  // namespace eplog
