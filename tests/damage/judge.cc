#include "tests/damage/judge.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <optional>
#include <utility>

#include "base/buffer.h"

namespace eplog::damage {
namespace {

constexpr uint64_t kPatienceUs = uint64_t{600} * 1'000'000;  // of virtual time, for one step

// One damaged array, from its first opening to its last.
class Judging {
 public:
  Judging(const Base& base, std::vector<ImageDevice>& devices, uint64_t entropy)
      : base_(base), devices_(devices), entropy_(entropy) {
    for (const auto& [name, volume] : base.volumes) {
      settled_[name].resize(volume.chunks.size());
    }
  }
  ~Judging() { Drop(); }

  // True if it opened.
  bool Look();
  bool OpenAndScrub();
  void OpenAgainAndCheck();

  Verdict verdict;

 private:
  // Nothing if it takes for ever.
  template <typename T>
  std::optional<T> Run(Task<T> task) {
    std::optional<T> result;
    const uint64_t deadline = loop_.NowUs() + kPatienceUs;
    loop_.Spawn([](Task<T> inner, std::optional<T>& out) -> Task<void> {
      T value = co_await inner;
      out.emplace(std::move(value));
    }(std::move(task), result));
    const bool ended =
        loop_.RunUntil([&] { return result.has_value() || loop_.NowUs() > deadline; });
    if (!ended || !result.has_value()) {
      loop_.Abort();
      return std::nullopt;
    }
    return result;
  }
  bool Wrong(const std::string& what) {
    verdict.wrong += verdict.wrong.empty() ? what : "";
    return false;
  }
  bool Open(bool read_only, const char* when);
  bool Close(const char* when);
  bool Content(const char* when);
  bool VolumeContent(const VolumeInfo& volume, const char* when);
  void Drop() {
    loop_.Abort();
    array_.reset();
  }

  const Base& base_;
  std::vector<ImageDevice>& devices_;
  uint64_t entropy_;
  VirtualLoop loop_;
  BufferPool pool_;
  std::unique_ptr<Array> array_;
  // By volume and chunk: which of its contents was read first; it is to stay.
  std::map<std::string, std::vector<std::optional<size_t>>> settled_;
};

bool NamesSomething(const std::string& message) {
  constexpr std::array<const char*, 8> kWords = {"ssd",   "log",   "superblock", "checkpoint",
                                                 "epoch", "entry", "member",     "geometry"};
  return std::any_of(kWords.begin(), kWords.end(),
                     [&](const char* word) { return message.find(word) != std::string::npos; });
}

bool Judging::Open(bool read_only, const char* when) {
  std::vector<Device*> all;
  for (ImageDevice& device : devices_) {
    all.push_back(&device);
  }
  OpenOptions options;
  options.entropy = ++entropy_;
  options.read_only = read_only;
  auto opened = Run(Array::Open(loop_, all, options));
  if (!opened) {
    return Wrong(std::string(when) + ": opening does not end");
  }
  if (!opened->ok()) {
    verdict.refusal = opened->error().ToString();
    if (verdict.refusal.find('\n') != std::string::npos || !NamesSomething(verdict.refusal)) {
      Wrong(std::string(when) + ": refused without naming a device or structure: '" +
            verdict.refusal + "'");
    }
    return false;
  }
  array_ = std::move(**opened);
  return true;
}

bool Judging::Close(const char* when) {
  const auto closed = Run(array_->Close());
  Drop();
  if (!closed) {
    return Wrong(std::string(when) + ": closing does not end");
  }
  return closed->ok() || Wrong(std::string(when) + ": closing: " + closed->error().ToString());
}

bool Judging::VolumeContent(const VolumeInfo& volume, const char* when) {
  const std::string at = std::string(when) + ": volume " + volume.name;
  const auto known = base_.volumes.find(volume.name);
  if (known == base_.volumes.end() || volume.size_bytes != known->second.size_bytes) {
    return Wrong(at + " is not one that was there, or has another size");
  }
  const Buffer all = pool_.Get(volume.size_bytes);
  const auto read = Run(array_->Read(volume.id, 0, all.span()));
  if (!read || !read->ok()) {
    return Wrong(at + (read ? ": " + read->error().ToString() : ": reading does not end"));
  }
  std::vector<std::optional<size_t>>& settled = settled_[volume.name];
  for (size_t chunk = 0; chunk < known->second.chunks.size(); ++chunk) {
    const Contents& contents = known->second.chunks[chunk];
    const auto here = std::find_if(contents.begin(), contents.end(), [&](const Bytes& content) {
      return std::memcmp(content.data(), all.data() + chunk * kChunkBytes, kChunkBytes) == 0;
    });
    const auto which = static_cast<size_t>(here - contents.begin());
    if (here == contents.end()) {
      return Wrong(at + " chunk " + std::to_string(chunk) +
                   " holds what was never written there, " + "or what a flush had replaced");
    }
    if (settled[chunk].value_or(which) != which) {
      return Wrong(at + " chunk " + std::to_string(chunk) + " reads otherwise than before");
    }
    settled[chunk] = which;
  }
  return true;
}

bool Judging::Content(const char* when) {
  const std::vector<VolumeInfo> volumes = array_->Volumes();
  if (volumes.size() != base_.volumes.size()) {
    return Wrong(std::string(when) + ": a volume is missing, or one too many");
  }
  return std::all_of(volumes.begin(), volumes.end(),
                     [&](const VolumeInfo& volume) { return VolumeContent(volume, when); });
}

bool Judging::Look() {
  if (!Open(true, "read-only")) {
    return false;
  }
  static_cast<void>(Content("read-only") && Close("read-only"));
  const bool written = std::any_of(devices_.begin(), devices_.end(),
                                   [](const ImageDevice& device) { return device.writes() != 0; });
  return written ? Wrong("a read-only opening has written") : verdict.wrong.empty();
}

bool Judging::OpenAndScrub() {
  if (!Open(false, "opened")) {
    return false;
  }
  const ArrayStatus status = array_->GetStatus();
  verdict.degraded =
      std::any_of(status.devices.begin(), status.devices.end(),
                  [](const DeviceStatus& device) { return device.state != DeviceState::kOk; });
  if (!Content("opened")) {
    return false;
  }
  for (const char* when : {"scrub", "second scrub"}) {
    const auto report = Run(array_->Scrub(true, Progress()));
    if (!report || !report->ok()) {
      return Wrong(std::string(when) +
                   (report ? ": " + report->error().ToString() : " does not end"));
    }
    const bool first = verdict.problems == 0 && std::strcmp(when, "scrub") == 0;
    verdict.problems += (*report)->problems_found;
    if ((*report)->lost != 0 || (!first && (*report)->problems_found != 0)) {
      return Wrong(std::string(when) + ": " + (*report)->findings.front().Text());
    }
  }
  return Content("scrubbed") && Close("scrubbed");
}

void Judging::OpenAgainAndCheck() {
  if (!Open(true, "opened again")) {
    Wrong("opened again: " + verdict.refusal);
    return;
  }
  const auto report = Run(array_->Check(Progress()));
  if (!report || !report->ok()) {
    Wrong("check: " + (report ? report->error().ToString() : "does not end"));
    return;
  }
  if ((*report)->problems_found != 0) {
    Wrong("check: " + (*report)->findings.front().Text());
    return;
  }
  static_cast<void>(Content("checked") && Close("checked"));
}

}  // namespace

Verdict Judge(const Base& base, std::vector<ImageDevice>& devices, uint64_t entropy, bool look) {
  Judging judging(base, devices, entropy);
  bool good = !look || judging.Look();
  const std::string refused_look = std::exchange(judging.verdict.refusal, {});
  if (judging.verdict.wrong.empty()) {
    good = judging.OpenAndScrub();
    if (look && refused_look.empty() != judging.verdict.refusal.empty()) {
      judging.verdict.wrong =
          "opens read-only or for writing, not both: " + refused_look + judging.verdict.refusal;
    }
  }
  if (good) {
    judging.OpenAgainAndCheck();
  }
  return judging.verdict;
}

}  // namespace eplog::damage
