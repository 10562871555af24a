#include "baseline/block_target.h"

namespace eplog {
namespace {

DeviceTraffic Total(std::span<const DeviceTraffic> devices) {
  DeviceTraffic total;
  for (const DeviceTraffic& device : devices) {
    total.reads += device.reads;
    total.writes += device.writes;
    total.flushes += device.flushes;
    total.bytes_read += device.bytes_read;
    total.bytes_written += device.bytes_written;
  }
  return total;
}

}  // namespace

const char* IoClassName(IoClass io_class) {
  switch (io_class) {
    case IoClass::kUserRead:
      return "user_read";
    case IoClass::kFillRead:
      return "fill_read";
    case IoClass::kModifyRead:
      return "modify_read";
    case IoClass::kReconstructRead:
      return "reconstruct_read";
    case IoClass::kDecodeRead:
      return "decode_read";
    case IoClass::kCommitRead:
      return "commit_read";
    case IoClass::kDataWrite:
      return "data_write";
    case IoClass::kParityWrite:
      return "parity_write";
    case IoClass::kLogWrite:
      return "log_write";
  }
  return "unknown";
}

DeviceTraffic TargetTraffic::SsdTotal() const {
  return Total(ssds);
}

DeviceTraffic TargetTraffic::LogTotal() const {
  return Total(logs);
}

}  // namespace eplog
