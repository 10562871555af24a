#include "tests/damage/judge.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <optional>
#include <utility>

#include "base/buffer.h"
#include "base/random.h"

namespace eplog::damage {
namespace {

constexpr uint64_t kPatienceUs = uint64_t{600} * 1'000'000;  // of virtual time, for one step

// One damaged array, from its first opening to its last.
class Judging {
 public:
  Judging(const Base& base, std::vector<ImageDevice>& devices, const JudgeOptions& options)
      : base_(base), devices_(devices), entropy_(options.entropy), random_(options.entropy) {
    hooks_.canary = options.canary;
    for (const auto& [name, volume] : base.volumes) {
      settled_[name].resize(volume.chunks.size());
    }
  }
  ~Judging() { Drop(); }

  // True if it opened, and nothing was wrong.
  bool Look();
  bool OpenAndScrub();
  bool OpenAgainAndCheck();
  // As many as the array was told that it may lose.
  void LoseAndLook();
  Verdict Finish();

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
  Random random_;
  EngineHooks hooks_;
  uint64_t left_out_ = 0;     // devices that are not given
  std::vector<size_t> good_;  // those that are ok when all is mended
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
  for (size_t i = 0; i < devices_.size(); ++i) {
    if ((left_out_ >> i & 1) == 0) {
      all.push_back(&devices_[i]);
    }
  }
  OpenOptions options;
  options.entropy = ++entropy_;
  options.read_only = read_only;
  options.without_logs = ~uint64_t{0};
  auto opened = Run(OpenHooked(loop_, all, options, &hooks_));
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
  for (size_t i = 0; i < status.devices.size(); ++i) {
    if (status.devices[i].state == DeviceState::kOk) {
      good_.push_back(i);
    }
  }
  verdict.degraded = good_.size() + (base_.shape.past == Past::kLost ? 1 : 0) < devices_.size();
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
  // What scrubbing does not look at: the journal and the metadata.
  const auto renewed = Run(array_->Checkpoint(CheckpointKind::kFull));
  if (!renewed || !renewed->ok()) {
    return Wrong("checkpoint: " + (renewed ? renewed->error().ToString() : "does not end"));
  }
  return Content("scrubbed") && Close("scrubbed");
}

bool Judging::OpenAgainAndCheck() {
  if (!Open(true, "opened again")) {
    return Wrong("opened again: " + verdict.refusal);
  }
  const auto report = Run(array_->Check(Progress()));
  if (!report || !report->ok()) {
    return Wrong("check: " + (report ? report->error().ToString() : "does not end"));
  }
  if ((*report)->problems_found != 0) {
    return Wrong("check: " + (*report)->findings.front().Text());
  }
  return Content("checked") && Close("checked");
}

void Judging::LoseAndLook() {
  const size_t missing = devices_.size() - good_.size();
  for (size_t losses = base_.shape.m - missing; losses != 0; --losses) {
    const size_t at = random_.Below(good_.size());
    left_out_ |= uint64_t{1} << good_[at];
    good_.erase(good_.begin() + static_cast<std::ptrdiff_t>(at));
  }
  if (!Open(true, "with others lost")) {
    Wrong("with others lost: " + verdict.refusal);
    return;
  }
  static_cast<void>(Content("with others lost") && Close("with others lost"));
}

Verdict Judging::Finish() {
  Drop();  // what it counted is told at its end
  verdict.decoded_chunks = hooks_.decoded_chunks;
  verdict.recovery_repairs = hooks_.recovery_repairs;
  verdict.recovery_cuts = hooks_.recovery_cut_entries;
  return verdict;
}

}  // namespace

Verdict Judge(const Base& base, std::vector<ImageDevice>& devices, const JudgeOptions& options) {
  Judging judging(base, devices, options);
  Verdict& verdict = judging.verdict;
  const bool looked = options.look && judging.Look();
  const std::string refused_look = std::exchange(verdict.refusal, {});
  if (!verdict.wrong.empty()) {
    return judging.Finish();
  }
  const bool opened = judging.OpenAndScrub();
  if (options.look && looked != verdict.refusal.empty() && verdict.wrong.empty()) {
    verdict.wrong = "opens read-only or for writing, not both: " + refused_look + verdict.refusal;
  }
  if (opened && judging.OpenAgainAndCheck() && options.lose) {
    judging.LoseAndLook();
  }
  return judging.Finish();
}

}  // namespace eplog::damage
