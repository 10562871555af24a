#include "cli/scrub_mark.h"

#include <fstream>
#include <string>
#include <system_error>

#include "frontend/json.h"

namespace eplog::cli {
namespace {

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

ScrubMarkKeeper KeepScrubMark(const ArrayFile& file) {
  ScrubMarkKeeper keeper;
  keeper.load = [path = ScrubMarkPath(file), uuid = file.uuid] { return Load(path, uuid); };
  keeper.save = [path = ScrubMarkPath(file),
                 uuid = file.uuid](const std::optional<ScrubMark>& mark) {
    if (mark) {
      Save(path, uuid, *mark);
    } else {
      std::error_code ignored;
      std::filesystem::remove(path, ignored);
    }
  };
  return keeper;
}

void ForgetScrubMark(const ArrayFile& file) {
  std::error_code ignored;
  std::filesystem::remove(ScrubMarkPath(file), ignored);
}

}  // namespace eplog::cli
