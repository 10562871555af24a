#include "baseline/plug.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "base/check.h"
#include "runtime/task_group.h"

namespace eplog {
namespace {

constexpr size_t kMostParts = 1024;  // what the system takes in one request

bool Before(const Part& a, const Part& b) {
  return std::tuple(a.device, IsWrite(a.io_class), a.offset_bytes) <
         std::tuple(b.device, IsWrite(b.io_class), b.offset_bytes);
}

bool GoesOn(const Part& last, const Part& next) {
  return last.device == next.device && IsWrite(last.io_class) == IsWrite(next.io_class) &&
         last.offset_bytes + last.length_bytes == next.offset_bytes;
}

std::vector<iovec> VectorsOf(const std::vector<Part>& parts) {
  std::vector<iovec> vectors;
  vectors.reserve(parts.size());
  for (const Part& part : parts) {
    vectors.push_back({part.memory, part.length_bytes});
  }
  return vectors;
}

}  // namespace

Plug::Plug(EventLoop& loop, std::vector<Device*> devices, const PlugLimits& limits,
           TargetTraffic& traffic)
    : loop_(loop),
      devices_(std::move(devices)),
      limits_(limits),
      traffic_(traffic),
      runs_(devices_.size()),
      in_flight_(loop) {
  EPLOG_CHECK(traffic.ssds.size() + traffic.logs.size() == devices_.size(), "all are counted");
}

DeviceTraffic& Plug::TrafficOf(DeviceIndex device) {
  const size_t ssds = traffic_.ssds.size();
  return device.value < ssds ? traffic_.ssds[device.value] : traffic_.logs[device.value - ssds];
}

void Plug::Add(const Part& part) {
  EPLOG_CHECK(devices_[part.device.value] != nullptr, "a failed device is not asked");
  if (!Joins(part)) {
    if (requests_ >= limits_.requests) {
      Send();
    }
    ++requests_;
    runs_[part.device.value] = {IsWrite(part.io_class), part.offset_bytes,
                                part.offset_bytes + part.length_bytes};
  }
  in_flight_.Add();
  waiting_.push_back(part);
  if (!leaving_) {
    leaving_ = true;
    loop_.Spawn(Leave());
  }
}

bool Plug::Joins(const Part& part) {
  Run& run = runs_[part.device.value];
  const uint64_t end_bytes = part.offset_bytes + part.length_bytes;
  const bool fits = run.end_bytes - run.begin_bytes + part.length_bytes <= limits_.request_bytes;
  if (run.begin_bytes == run.end_bytes || run.write != IsWrite(part.io_class) || !fits ||
      (part.offset_bytes != run.end_bytes && end_bytes != run.begin_bytes)) {
    return false;
  }
  run.begin_bytes = std::min(run.begin_bytes, part.offset_bytes);
  run.end_bytes = std::max(run.end_bytes, end_bytes);
  return true;
}

Task<void> Plug::Leave() {
  leaving_ = false;
  Send();
  co_return;
}

void Plug::Send() {
  requests_ = 0;
  runs_.assign(runs_.size(), {});
  std::vector<Part> parts = std::exchange(waiting_, {});
  std::stable_sort(parts.begin(), parts.end(), Before);
  for (size_t first = 0; first < parts.size();) {
    uint64_t length = parts[first].length_bytes;
    size_t end = first + 1;
    while (end < parts.size() && GoesOn(parts[end - 1], parts[end]) &&
           length + parts[end].length_bytes <= limits_.request_bytes && end - first < kMostParts) {
      length += parts[end].length_bytes;
      ++end;
    }
    loop_.Start(Issue({parts.begin() + static_cast<ptrdiff_t>(first),
                       parts.begin() + static_cast<ptrdiff_t>(end)}));
    first = end;
  }
}

Task<void> Plug::Issue(std::vector<Part> parts) {
  const bool write = IsWrite(parts[0].io_class);
  uint64_t length = 0;
  for (const Part& part : parts) {
    traffic_.class_bytes[static_cast<size_t>(part.io_class)] += part.length_bytes;
    length += part.length_bytes;
  }
  DeviceTraffic& counted = TrafficOf(parts[0].device);
  ++(write ? counted.writes : counted.reads);
  (write ? counted.bytes_written : counted.bytes_read) += length;
  const std::vector<iovec> vectors = VectorsOf(parts);
  Device* const device = devices_[parts[0].device.value];
  Task<Status> request = write ? device->Write(parts[0].offset_bytes, std::span(vectors))
                               : device->Read(parts[0].offset_bytes, std::span(vectors));
  const Status status = co_await request;
  for (const Part& part : parts) {
    part.waiter->PartDone(part.tag, status);
    in_flight_.Done();
  }
}

Task<Status> Plug::FlushDevice(DeviceIndex device) {
  ++TrafficOf(device).flushes;
  Task<Status> flush = devices_[device.value]->Flush();
  co_return co_await flush;
}

Task<Status> Plug::FlushDevices() {
  TaskGroup group(loop_);
  for (size_t i = 0; i < devices_.size(); ++i) {
    if (devices_[i] != nullptr) {
      group.Start(FlushDevice(DeviceIndex(static_cast<uint8_t>(i))));
    }
  }
  Task<Status> all = group.Wait();
  co_return co_await all;
}

Task<void> Plug::Idle() {
  return in_flight_.Wait();
}

void PartGroup::Add(Part part) {
  part.waiter = this;
  done_.Add();
  plug_.Add(part);
}

Task<Status> PartGroup::Wait() {
  Task<void> all = done_.Wait();
  co_await all;
  co_return std::exchange(status_, OkStatus());
}

void PartGroup::PartDone(uint32_t /*tag*/, const Status& status) {
  if (!status.ok() && status_.ok()) {
    status_ = status;
  }
  done_.Done();
}

}  // namespace eplog
