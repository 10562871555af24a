#include "host/scrub_mark.h"

#include <chrono>
#include <fstream>
#include <mutex>
#include <string>
#include <system_error>
#include <utility>

#include "report/json.h"

namespace eplog {
namespace {

// How long the end of the process waits for the last mark.
constexpr auto kClosing = std::chrono::seconds(5);

std::optional<ScrubMark> Load(const std::filesystem::path& path, const std::string& uuid) {
  std::ifstream in(path, std::ios::binary);
  const Json json = Json::parse(in, nullptr, false);
  const auto number = [&json](const char* key) -> std::optional<uint64_t> {
    const auto found = json.find(key);
    return found != json.end() && found->is_number_unsigned()
               ? std::optional(found->get<uint64_t>())
               : std::nullopt;
  };
  if (!json.is_object() || !json.contains("uuid") || json["uuid"] != uuid ||
      !json.contains("heal") || !json["heal"].is_boolean()) {
    return std::nullopt;
  }
  const auto next = number("next_stripe");
  const auto problems = number("problems_found");
  const auto healed = number("healed");
  const auto lost = number("lost");
  if (!next || !problems || !healed || !lost) {
    return std::nullopt;
  }
  return ScrubMark{json["heal"].get<bool>(), *next, *problems, *healed, *lost};
}

void Save(const std::filesystem::path& path, const std::string& uuid, const ScrubMark& mark) {
  const Json json = {{"uuid", uuid},
                     {"heal", mark.heal},
                     {"next_stripe", mark.next_stripe},
                     {"problems_found", mark.problems_found},
                     {"healed", mark.healed},
                     {"lost", mark.lost}};
  const std::filesystem::path beside = path.string() + ".new";
  {
    std::ofstream out(beside, std::ios::binary | std::ios::trunc);
    out << json.dump() << "\n";
    if (!out.flush()) {
      return;
    }
  }
  std::error_code ignored;
  std::filesystem::rename(beside, path, ignored);
}

}  // namespace

std::filesystem::path ScrubMarkPath(const ArrayFile& file) {
  return file.file.parent_path() / "scrub.json";
}

// The newest mark, for whoever writes it next.
struct ScrubMarkFile::Shared {
  ArrayFile array;
  std::filesystem::path path;
  std::mutex mutex;  // guards what follows; never held while writing
  std::optional<ScrubMark> newest;
  bool queued = false;
};

ScrubMarkFile::ScrubMarkFile(const ArrayFile& file) : shared_(std::make_shared<Shared>()) {
  shared_->array = file;
  shared_->path = ScrubMarkPath(file);
  shared_->newest = Load(shared_->path, file.uuid);
}

ScrubMarkFile::~ScrubMarkFile() {
  writing_.Finish(kClosing);
}

std::optional<ScrubMark> ScrubMarkFile::newest() const {
  const std::lock_guard lock(shared_->mutex);
  return shared_->newest;
}

void ScrubMarkFile::Keep(const std::optional<ScrubMark>& mark) {
  {
    const std::lock_guard lock(shared_->mutex);
    shared_->newest = mark;
    if (std::exchange(shared_->queued, true)) {
      return;  // whoever is about to write takes this one
    }
  }
  // One at a time, so there is room; if there is no thread, the next mark is written.
  if (!writing_.Post([shared = shared_] { WriteNewest(*shared); })) {
    const std::lock_guard lock(shared_->mutex);
    shared_->queued = false;
  }
}

void ScrubMarkFile::WriteNewest(Shared& shared) {
  std::optional<ScrubMark> mark;
  {
    const std::lock_guard lock(shared.mutex);
    mark = shared.newest;
    shared.queued = false;
  }
  if (IsAnothersByNow(shared.array)) {
    return;
  }
  if (mark) {
    Save(shared.path, shared.array.uuid, *mark);
  } else {
    std::error_code ignored;
    std::filesystem::remove(shared.path, ignored);
  }
}

ScrubMarkKeeper ScrubMarkFile::Keeper() {
  return {[this] { return newest(); }, [this](const auto& mark) { Keep(mark); }};
}

void ForgetScrubMark(const ArrayFile& file) {
  std::error_code ignored;
  std::filesystem::remove(ScrubMarkPath(file), ignored);
}

}  // namespace eplog
