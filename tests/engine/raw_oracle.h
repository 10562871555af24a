// What a cleanly closed array holds, decoded from the bytes of some of its devices alone: slots and
// places from its checkpoint, content with the slow code of tests/erasure/oracle.h. Nothing of the
// engine's reading and decoding is used, nor its coefficients.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "eplog/device.h"
#include "eplog/event_loop.h"

namespace eplog {

// The content of the volume with that name, without the devices of `lost` (mask by index, at most
// m). `wrong` says what could not be decoded; empty if all could.
std::vector<std::byte> DecodeVolume(EventLoop& loop, const std::vector<Device*>& devices,
                                    uint64_t lost, const std::string& name, std::string& wrong);

}  // namespace eplog
