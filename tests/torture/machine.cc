#include "tests/torture/machine.h"

#include <limits>

namespace eplog::torture {
namespace {

// No request may wait for longer in simulated time; a slow device needs milliseconds.
constexpr uint64_t kStallUs = 200'000'000;

}  // namespace

Machine::Machine(const SeedPlan& plan, uint64_t seed)
    : loop_(seed), bus_(loop_, seed ^ 0xB05), geometry_(plan.geometry) {
  bus_.set_slow_kind(plan.slow_kind);
  Random sizes(seed ^ 0x512E);
  for (uint32_t i = 0; i < plan.devices(); ++i) {
    const bool ssd = i < plan.n;
    DeviceCapabilities capabilities;
    capabilities.alignment_bytes = plan.alignment_bytes;
    capabilities.discard = ssd && plan.discard;
    // Members need not be of one size.
    const uint64_t spare = sizes.OneIn(2) ? 0 : sizes.Below(8) * 4096;
    const uint64_t size = (ssd ? plan.ssd_bytes : plan.log_bytes) + spare;
    const std::string name = (ssd ? "ssd" : "log") + std::to_string(ssd ? i : i - plan.n);
    devices_.push_back(
        std::make_unique<SimDevice>(bus_, static_cast<uint8_t>(i), name, size, capabilities));
  }
  Classify(plan.geometry);
}

Machine::Machine(const Machine& other, uint64_t seed)
    : loop_(seed), bus_(loop_, seed ^ 0xB05), geometry_(other.geometry_) {
  for (const auto& device : other.devices_) {
    devices_.push_back(std::make_unique<SimDevice>(bus_, *device));
  }
  Classify(geometry_);
}

// Writes that nobody named are told by where they go.
void Machine::Classify(const Geometry& geometry) {
  bus_.set_classify([geometry](uint8_t device, uint64_t offset) {
    if (offset < kSuperblockAreaBytes) {
      return IoKind::kSuperblock;
    }
    if (device >= geometry.n) {
      return IoKind::kEntry;
    }
    return offset < geometry.ring_offset_bytes    ? IoKind::kCheckpointPage
           : offset < geometry.slots_offset_bytes ? IoKind::kRing
                                                  : IoKind::kData;
  });
}

SimDevice& Machine::Renew(uint8_t index, bool empty) {
  const SimDevice& old = *devices_[index];
  auto fresh = empty ? std::make_unique<SimDevice>(bus_, index, old.name(), old.size_bytes(),
                                                   old.capabilities())
                     : std::make_unique<SimDevice>(bus_, old);
  fresh->Settle();
  bus_.ClearDooms(index);
  std::swap(devices_[index], fresh);
  replaced_.push_back(std::move(fresh));
  return *devices_[index];
}

std::vector<Device*> Machine::Except(const DeviceSet& withheld) {
  std::vector<Device*> present;
  for (const auto& device : devices_) {
    if (!withheld.contains(device->index())) {
      present.push_back(device.get());
    }
  }
  return present;
}

Driven Machine::Drive(const std::function<bool()>& done, const uint64_t* progress_us) {
  const uint64_t began = loop_.NowUs();
  bool overtime = false;
  const bool moved = loop_.RunUntil([&] {
    overtime = loop_.NowUs() - (progress_us != nullptr ? *progress_us : began) > kStallUs;
    return bus_.stricken() || !bus_.complaint().empty() || done() || overtime;
  });
  if (bus_.stricken()) {
    return Driven::kStricken;
  }
  return moved && !overtime ? Driven::kDone : Driven::kStalled;
}

void Machine::Crash(Random& random, bool power, const DeviceSet& unplugged) {
  uint64_t oldest = std::numeric_limits<uint64_t>::max();
  uint64_t newest = 0;
  for (const auto& device : devices_) {
    device->AgeRange(oldest, newest);
  }
  // Often all devices fare alike: what only some of them keep can then be missing everywhere.
  const bool alike = random.OneIn(2);
  const CutStyle style = RandomCutStyle(random, oldest, newest);
  for (const auto& device : devices_) {
    if (power || unplugged.contains(device->index())) {
      device->PowerCut(random, alike ? style : RandomCutStyle(random, oldest, newest));
    } else {
      device->Kill(random);
    }
  }
  bus_.Thaw();
}

void Machine::CrashTearing(Random& random) {
  for (const auto& device : devices_) {
    device->PowerCut(random, {.fate = CutStyle::Fate::kTorn});
  }
  bus_.Thaw();
}

void Machine::CrashKeeping(Random& random, const DeviceSet& devices) {
  for (const auto& device : devices_) {
    CutStyle style;
    style.fate = devices.contains(device->index()) ? CutStyle::Fate::kKeep : CutStyle::Fate::kDrop;
    device->PowerCut(random, style);
  }
  bus_.Thaw();
}

uint64_t Machine::WritesSubmitted() const {
  uint64_t sum = 0;
  for (const auto& device : devices_) {
    sum += device->writes_submitted();
  }
  return sum;
}

size_t Machine::InFlight() const {
  size_t sum = 0;
  for (const auto& device : devices_) {
    sum += device->in_flight();
  }
  return sum;
}

std::string Names(const SeedPlan& plan, const DeviceSet& devices) {
  std::string text;
  for (const uint8_t device : devices) {
    text += (text.empty() ? "" : " ") + (device < plan.n ? "ssd" + std::to_string(device)
                                                         : "log" + std::to_string(device - plan.n));
  }
  return text.empty() ? "none" : text;
}

}  // namespace eplog::torture
