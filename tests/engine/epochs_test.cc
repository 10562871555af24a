// Which devices an opening trusts (I11), against a world of nothing but superblocks: openings and
// losses that are struck between any two writes, members that are away, come back, were put back
// from an older copy, or have the newest copy of their superblock damaged. What was written under
// an epoch is kept by a set, so that none of it can be forgotten by the code that is judged.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/random.h"
#include "device/memory_device.h"
#include "engine/open/assembly.h"

namespace eplog {
namespace {

using Mask = uint32_t;

constexpr Mask Bit(size_t i) {
  return Mask{1} << i;
}

struct SimMember {
  std::array<std::optional<Superblock>, 2> copies;
  std::array<bool, 2> damaged{};
  std::set<Epoch> has;  // the epochs of which it has what was written under them

  size_t NewestAt() const {
    const auto generation = [this](size_t i) {
      return copies[i] && !damaged[i] ? copies[i]->generation : 0;
    };
    return generation(0) > generation(1) ? 0 : 1;
  }
  const Superblock& Newest() const { return *copies[NewestAt()]; }
};

class World {
 public:
  explicit World(uint64_t seed) : random_(seed) {
    geometry_.m = 1 + static_cast<uint32_t>(random_.Below(3));
    geometry_.n = geometry_.m + 1 + static_cast<uint32_t>(random_.Below(4));
    Superblock first;
    first.geometry = geometry_;
    first.epoch = first.base = {1, random_.Next()};
    first.generation = 1;
    for (size_t i = 0; i < count(); ++i) {
      MemberEntry& entry = first.members.emplace_back();
      entry.uuid[0] = static_cast<std::byte>(i + 1);
      devices_.push_back(std::make_unique<MemoryDevice>("member", 4096));
    }
    members_.resize(count());
    for (size_t i = 0; i < count(); ++i) {
      first.index = DeviceIndex(static_cast<uint8_t>(i));
      first.device_uuid = first.members[i].uuid;
      members_[i].copies = {first, first};
    }
    older_ = members_;
  }

  // One life of the array; false if it broke a promise.
  void Live() {
    Mask absent = 0;
    for (size_t i = 0; i < count(); ++i) {
      Harm(i, absent);
    }
    std::vector<FoundMember> found = Find(absent);
    Result<Assembly> judged = Judge(found, Canary::kNone);
    if (!judged.ok() || !CheckEnough(*judged).ok()) {
      Tell("refused");
      ADD_FAILURE()
          << (judged.ok() ? CheckEnough(*judged) : Status(Fail(judged.error()))).error().message
          << "\n"
          << said_;
      return;
    }
    Mask live = 0;
    for (size_t i = 0; i < count(); ++i) {
      live |= judged->devices[i] != nullptr ? Bit(i) : 0;
    }
    CheckTrusted(judged->winner, live);
    Open(*judged, live);
  }

 private:
  size_t count() const { return geometry_.devices(); }

  // At most m devices at a time lack something: those that are not what they were, and those that
  // missed something earlier.
  void Harm(size_t i, Mask& absent) {
    const bool may =
        (behind_ & Bit(i)) != 0 || static_cast<uint32_t>(std::popcount(behind_)) < geometry_.m;
    if (!may || !random_.OneIn(5)) {
      return;
    }
    behind_ |= Bit(i);
    switch (random_.Below(3)) {
      case 0:
        absent |= Bit(i);
        Tell("away " + std::to_string(i));
        break;
      case 1:
        members_[i] = older_[i];
        Tell("older " + std::to_string(i));
        break;
      default:
        members_[i].damaged[members_[i].NewestAt()] =
            !members_[i].damaged[1 - members_[i].NewestAt()];
        Tell("damage " + std::to_string(i));
    }
    if (random_.OneIn(3)) {
      older_[i] = members_[i];
    }
  }

  std::vector<FoundMember> Find(Mask absent) {
    std::vector<FoundMember> found;
    for (size_t i = 0; i < count(); ++i) {
      if ((absent & Bit(i)) == 0) {
        const SimMember& member = members_[i];
        found.push_back({devices_[i].get(), member.Newest(), member.damaged[0] || member.damaged[1],
                         found.size(), ""});
      }
    }
    return found;
  }

  // Who is well is trusted. What was written under an epoch that opened is on all that are trusted
  // to have it.
  void CheckTrusted(const Superblock& winner, Mask live) {
    EXPECT_EQ(live | behind_, Bit(count()) - 1) << said_;
    Epoch opened;
    for (size_t i = 0; i < count(); ++i) {
      opened = (live & Bit(i)) != 0 ? std::max(opened, members_[i].Newest().base) : opened;
    }
    for (size_t i = 0; i < count(); ++i) {
      if ((live & Bit(i)) != 0 && winner.members[i].state == MemberState::kOk) {
        CheckHas(i, opened);
      }
    }
  }
  void CheckHas(size_t i, const Epoch& opened) {
    for (const Epoch& epoch : written_) {
      if (epoch <= opened && !members_[i].has.contains(epoch)) {
        ADD_FAILURE() << "device " << i << " lacks what was written under " << epoch.number << "\n"
                      << said_;
      }
    }
  }

  // Returns whether all of them bear it.
  bool Write(const Superblock& superblock, Mask live) {
    std::vector<size_t> order;
    for (size_t i = 0; i < count(); ++i) {
      if ((live & Bit(i)) != 0) {
        order.insert(order.begin() + static_cast<std::ptrdiff_t>(random_.Below(order.size() + 1)),
                     i);
      }
    }
    const size_t struck = random_.OneIn(3) ? random_.Below(order.size() + 1) : order.size();
    for (size_t at = 0; at < std::min(struck + 1, order.size()); ++at) {
      SimMember& member = members_[order[at]];
      const size_t into = 1 - member.NewestAt();
      if (at == struck) {
        member.damaged[into] = member.damaged[into] || random_.OneIn(3);  // torn
        continue;
      }
      const Superblock before = member.Newest();
      member.copies[into] = superblock;
      member.copies[into]->index = before.index;
      member.copies[into]->device_uuid = before.device_uuid;
      member.copies[into]->generation = before.generation + 1;
      member.damaged[into] = false;
    }
    Tell("wrote " + std::to_string(struck) + " of " + std::to_string(order.size()));
    return struck == order.size();
  }

  void WriteUnder(const Epoch& epoch, Mask live) {
    written_.insert(epoch);
    for (size_t i = 0; i < count(); ++i) {
      if ((live & Bit(i)) != 0) {
        members_[i].has.insert(epoch);
      }
    }
  }

  void Open(const Assembly& assembly, Mask live) {
    const Superblock& winner = assembly.winner;
    Mask back = 0;
    for (size_t i = 0; i < count(); ++i) {
      const bool is_back = assembly.away[i].device != nullptr && (live & Bit(i)) == 0 &&
                           winner.members[i].state == MemberState::kLost;
      back |= is_back ? Bit(i) : 0;
    }
    const bool at_once = assembly.settled && winner.epoch == winner.base;
    Superblock next = winner;
    uint64_t number = assembly.highest_epoch;
    Mask part = live | (at_once ? back : 0);
    bool opened = Begin(next, ++number, part);
    if (opened && !at_once && back != 0) {
      part |= back;
      opened = Begin(next, ++number, part);
    }
    while (opened && random_.OneIn(3)) {  // a loss while it runs
      std::vector<size_t> may;
      for (size_t i = 0; i < count(); ++i) {
        const bool within =
            (behind_ & Bit(i)) != 0 || static_cast<uint32_t>(std::popcount(behind_)) < geometry_.m;
        if ((part & Bit(i)) != 0 && within) {
          may.push_back(i);
        }
      }
      if (may.empty()) {
        break;
      }
      const size_t lost = may[random_.Below(may.size())];
      Tell("lose " + std::to_string(lost));
      behind_ |= Bit(lost);
      part &= ~Bit(lost);
      opened = Begin(next, ++number, part);
    }
  }

  // False if it was struck before the epoch opened.
  bool Begin(Superblock& next, uint64_t number, Mask live) {
    next.epoch = {number, random_.Next()};
    for (size_t i = 0; i < count(); ++i) {
      next.members[i].state = (live & Bit(i)) == 0          ? MemberState::kLost
                              : members_[i].has == written_ ? MemberState::kOk
                                                            : MemberState::kReturning;
    }
    behind_ |= (Bit(count()) - 1) & ~live;
    Tell("epoch " + std::to_string(number) + " of " + std::to_string(live));
    if (!Write(next, live)) {
      return false;
    }
    WriteUnder(next.epoch, live);  // recovery
    next.base = next.epoch;
    if (!Write(next, live)) {
      return false;
    }
    // All that it has is on these: what others missed is written to them while it is open.
    for (size_t i = 0; i < count(); ++i) {
      if ((live & Bit(i)) != 0) {
        members_[i].has = written_;
        behind_ &= ~Bit(i);
      }
    }
    if (random_.OneIn(3)) {
      older_ = members_;
    }
    return true;
  }

  void Tell(const std::string& what) { said_ += what + "; "; }

  Random random_;
  Geometry geometry_;
  std::vector<std::unique_ptr<MemoryDevice>> devices_;
  std::vector<SimMember> members_;
  std::vector<SimMember> older_;
  std::set<Epoch> written_;
  Mask behind_ = 0;  // not known to have all that the array has
  std::string said_;
};

TEST(Epochs, TrustWhoHasAllAndRefuseNobodyWithinM) {
  for (uint64_t seed = 1; seed <= 20000 && !::testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE(seed);
    World world(seed);
    for (int life = 0; life < 12 && !::testing::Test::HasFailure(); ++life) {
      world.Live();
    }
  }
}

}  // namespace
}  // namespace eplog
