#include "tests/torture/oracle.h"

#include <algorithm>

#include "base/check.h"
#include "base/types.h"
#include "tests/torture/content.h"

namespace eplog::torture {

using Kind = VolumeChange::Kind;

VolumeModel* Oracle::Find(VolumeKey key) {
  const auto found = volumes_.find(key);
  return found == volumes_.end() ? nullptr : found->second.get();
}

uint64_t Oracle::OldestReader() const {
  return readers_.empty() ? std::numeric_limits<uint64_t>::max() : *readers_.begin();
}

// ---------------------------------------------------------------------------------------------
// volumes

VolumeKey Oracle::BeginChange(VolumeChange change) {
  EPLOG_CHECK(!change_running_, "one volume change at a time");
  change_running_ = true;
  change.called = ++now_;
  if (change.kind == Kind::kCreate) {
    change.key = next_key_++;
    auto volume = std::make_unique<VolumeModel>();
    volume->key = change.key;
    volume->name = change.name;
    volume->changing = volume->reshaped = true;
    volumes_.emplace(change.key, std::move(volume));
  }
  const VolumeKey key = change.key;
  unresolved_.push_back(std::move(change));
  return key;
}

std::string Oracle::EndChange(bool ok, std::optional<VolumeId> created) {
  change_running_ = false;
  ++now_;
  if (!ok) {
    return "";  // nobody uses that volume until an opening tells what became of it
  }
  NoteTable();
  const VolumeChange change = unresolved_.back();
  unresolved_.pop_back();
  Apply(change);
  if (change.kind != Kind::kCreate) {
    return "";
  }
  VolumeModel& volume = *Find(change.key);
  volume.id = created;
  volume.changing = false;
  if (!created || !used_ids_.insert(created->value).second) {
    return "the id of volume " + change.name + " was used before";
  }
  return "";
}

// What is about to be superseded.
void Oracle::NoteTable() {
  for (uint64_t applied = 0; applied < uint64_t{1} << unresolved_.size(); ++applied) {
    earlier_.emplace_back(now_, Table(applied));
  }
}

void Oracle::Resize(VolumeModel& volume, uint64_t size_bytes) {
  const size_t chunks = DivideUp(size_bytes, chunk_bytes_);
  if (size_bytes < volume.size_bytes && size_bytes % chunk_bytes_ != 0) {
    volume.chunks[chunks - 1].Truncate(now_, size_bytes % chunk_bytes_, chunk_bytes_);
  }
  volume.chunks.resize(chunks);
  volume.size_bytes = size_bytes;
  volume.reshaped = true;
  volume.reshaped_at = now_;
}

void Oracle::Apply(const VolumeChange& change) {
  if (change.kind == Kind::kDelete) {
    volumes_.erase(change.key);
    return;
  }
  VolumeModel* volume = Find(change.key);
  EPLOG_CHECK(volume != nullptr, "a change of a volume that is known");
  if (change.kind == Kind::kRename) {
    volumes_.erase(change.victim);
    volume->name = change.name;
    for (ChunkModel& chunk : volume->chunks) {
      if (change.victim != 0) {
        chunk.Flushed(change.called, !separate_stable_, OldestReader());
      }
    }
    return;
  }
  Resize(*volume, change.size_bytes);
}

// The volumes as they are if the unresolved changes in the mask `applied` happened.
Oracle::Rows Oracle::Table(uint64_t applied) const {
  Rows table;
  for (const auto& [key, volume] : volumes_) {
    table[key] = {key, volume->id, volume->name, volume->size_bytes};
  }
  for (const VolumeChange& change : unresolved_) {
    if (change.kind == Kind::kCreate) {
      table.erase(change.key);
    }
  }
  for (size_t i = 0; i < unresolved_.size(); ++i) {
    const VolumeChange& change = unresolved_[i];
    if ((applied >> i & 1) == 0) {
      continue;
    }
    switch (change.kind) {
      case Kind::kCreate:
        table[change.key] = {change.key, std::nullopt, change.name, change.size_bytes};
        break;
      case Kind::kDelete:
        table.erase(change.key);
        break;
      case Kind::kRename:
        table.erase(change.victim);
        if (table.contains(change.key)) {
          table[change.key].name = change.name;
        }
        break;
      case Kind::kResize:
        if (table.contains(change.key)) {
          table[change.key].size_bytes = change.size_bytes;
        }
        break;
    }
  }
  return table;
}

// What takes the place of another volume was durable before that one went.
uint64_t Oracle::DurableSince(VolumeKey key, uint64_t applied) const {
  uint64_t since = 0;
  for (size_t i = 0; i < unresolved_.size(); ++i) {
    const VolumeChange& change = unresolved_[i];
    if ((applied >> i & 1) != 0 && change.key == key && change.victim != 0) {
      since = std::max(since, change.called);
    }
  }
  return since;
}

bool Oracle::Matches(const Rows& table, const std::vector<VolumeInfo>& found,
                     std::vector<Match>& into) const {
  into.clear();
  if (table.size() != found.size()) {
    return false;
  }
  for (const auto& [key, wanted] : table) {
    const auto& row = wanted;  // clang 14 lets no lambda capture what is bound above
    const auto same = std::find_if(found.begin(), found.end(), [&](const VolumeInfo& info) {
      return info.name == row.name && info.size_bytes == row.size_bytes &&
             (row.id ? info.id == *row.id : !used_ids_.contains(info.id.value));
    });
    if (same == found.end()) {
      return false;
    }
    into.push_back({key, *same, 0});
  }
  return true;
}

Oracle::TableVerdict Oracle::JudgeTable(const std::vector<VolumeInfo>& found, bool weak) const {
  TableVerdict verdict;
  EPLOG_CHECK(unresolved_.size() <= kMostUnresolved, "few changes are unresolved");
  for (uint64_t applied = 0; applied < uint64_t{1} << unresolved_.size(); ++applied) {
    if (Matches(Table(applied), found, verdict.volumes)) {
      verdict.applied = applied;
      for (Match& match : verdict.volumes) {
        match.since = DurableSince(match.key, applied);
      }
      if (weak) {
        std::erase_if(verdict.volumes, [&](const Match& match) {
          return volumes_.at(match.key)->reshaped;  // what it held before is not kept
        });
      }
      return verdict;
    }
  }
  verdict.volumes.clear();
  if (weak) {
    TableVerdict earlier = JudgeEarlierTable(found);
    if (earlier.wrong.empty()) {
      return earlier;
    }
  }
  verdict.wrong = "the volumes are not what they may be: found";
  for (const VolumeInfo& info : found) {
    verdict.wrong += " " + info.name + "#" + std::to_string(info.id.value) + "(" +
                     std::to_string(info.size_bytes) + ")";
  }
  verdict.wrong += "; known";
  for (const auto& [key, row] : Table(0)) {
    verdict.wrong += " " + row.name + "#" + (row.id ? std::to_string(row.id->value) : "?") + "(" +
                     std::to_string(row.size_bytes) + ")";
  }
  for (const VolumeChange& change : unresolved_) {
    static constexpr const char* kNames[] = {"create", "resize", "rename", "delete"};
    verdict.wrong += std::string("; perhaps ") + kNames[static_cast<int>(change.kind)] +
                     " of volume " + std::to_string(change.key) + " (" + change.name + ", " +
                     std::to_string(change.size_bytes) + ")";
  }
  return verdict;
}

// One that the array had since the last stable state. Judged are the volumes that were the same
// then.
Oracle::TableVerdict Oracle::JudgeEarlierTable(const std::vector<VolumeInfo>& found) const {
  TableVerdict verdict;
  const bool was = std::ranges::any_of(earlier_, [&](const auto& table) {
    std::vector<Match> matches;
    return Matches(table.second, found, matches);
  });
  if (!was) {
    verdict.wrong = "a table that never was";
    return verdict;
  }
  for (const VolumeInfo& info : found) {
    for (const auto& [key, volume] : volumes_) {
      if (volume->id == info.id && volume->size_bytes == info.size_bytes && !volume->reshaped) {
        verdict.volumes.push_back({key, info, 0});
      }
    }
  }
  return verdict;
}

void Oracle::AdoptTable(const TableVerdict& verdict) {
  ++now_;
  earlier_.clear();
  const std::vector<VolumeChange> changes = std::exchange(unresolved_, {});
  for (size_t i = 0; i < changes.size(); ++i) {
    if ((verdict.applied >> i & 1) != 0 && Find(changes[i].key) != nullptr) {
      Apply(changes[i]);
    } else if (changes[i].kind == Kind::kCreate) {
      volumes_.erase(changes[i].key);
    }
  }
  for (const Match& match : verdict.volumes) {
    VolumeModel& volume = *Find(match.key);
    volume.id = match.info.id;
    used_ids_.insert(match.info.id.value);
  }
  for (const auto& [key, volume] : volumes_) {
    volume->users = 0;
    volume->changing = volume->doomed = volume->reshaped = false;
  }
}

// ------------------------------------------------------------------------------------------------
// data

bool Oracle::CanWrite(VolumeKey key, uint64_t offset_bytes, uint64_t length_bytes) {
  const VolumeModel& volume = *Find(key);
  const size_t last = (offset_bytes + length_bytes - 1) / chunk_bytes_;
  for (size_t i = offset_bytes / chunk_bytes_; i <= last; ++i) {
    if (!volume.chunks[i].CanWrite()) {
      return false;
    }
  }
  return true;
}

bool Oracle::IsOverwrite(VolumeKey key, uint64_t offset_bytes, uint64_t length_bytes,
                         uint64_t extent_bytes) const {
  const auto found = volumes_.find(key);
  if (found == volumes_.end()) {
    return false;
  }
  const std::vector<ChunkModel>& chunks = found->second->chunks;
  const uint64_t each = extent_bytes / chunk_bytes_;
  const uint64_t last = (offset_bytes + length_bytes - 1) / extent_bytes;
  for (uint64_t extent = offset_bytes / extent_bytes; extent <= last; ++extent) {
    const uint64_t end = std::min<uint64_t>((extent + 1) * each, chunks.size());
    bool holds = false;
    for (uint64_t i = extent * each; i < end && !holds; ++i) {
      holds = chunks[i].HoldsSomething();
    }
    if (!holds) {
      return false;
    }
  }
  return true;
}

Oracle::WriteToken Oracle::BeginWrite(VolumeKey key, uint64_t offset_bytes,
                                      std::span<const std::byte> data) {
  WriteToken token;
  token.key = key;
  VolumeModel& volume = *Find(key);
  ++now_;
  while (!data.empty()) {
    const size_t chunk = offset_bytes / chunk_bytes_;
    const size_t begin = offset_bytes % chunk_bytes_;
    const size_t length = std::min<size_t>(data.size(), chunk_bytes_ - begin);
    token.parts.emplace_back(
        chunk, volume.chunks[chunk].BeginWrite(now_, chunk_bytes_, begin, data.first(length)));
    data = data.subspan(length);
    offset_bytes += length;
  }
  return token;
}

void Oracle::EndWrite(const WriteToken& token, bool acknowledged) {
  VolumeModel* volume = Find(token.key);
  ++now_;
  if (volume == nullptr) {
    return;
  }
  for (const auto& [chunk, write] : token.parts) {
    if (chunk < volume->chunks.size()) {
      volume->chunks[chunk].EndWrite(now_, write, acknowledged);
    }
  }
}

uint64_t Oracle::BeginRead() {
  ++now_;
  readers_.insert(now_);
  return now_;
}

std::string Oracle::EndRead(uint64_t since, VolumeKey key, uint64_t offset_bytes,
                            std::span<const std::byte> got, bool failed) {
  readers_.erase(readers_.find(since));
  ++now_;
  VolumeModel* volume = Find(key);
  if (failed || volume == nullptr || volume->doomed) {
    return "";
  }
  while (!got.empty()) {
    const size_t chunk = offset_bytes / chunk_bytes_;
    const size_t begin = offset_bytes % chunk_bytes_;
    const size_t length = std::min<size_t>(got.size(), chunk_bytes_ - begin);
    ChunkModel& model = volume->chunks[chunk];
    if (!model.Read(now_, since, begin, got.first(length))) {
      return "P1: volume " + volume->name + " chunk " + std::to_string(chunk) + " bytes " +
             std::to_string(begin) + "+" + std::to_string(length) + " reads {" +
             Describe(got.first(length)) + "}, possible " + model.Allowed(false) + "; read since " +
             std::to_string(since);
    }
    got = got.subspan(length);
    offset_bytes += length;
  }
  return "";
}

Oracle::FlushToken Oracle::BeginFlush(VolumeKey key, uint64_t offset_bytes, uint64_t length_bytes) {
  return {++now_, key, offset_bytes, length_bytes};
}

// A chunk that the range covers in part promises only that part.
void Oracle::FlushEnds(VolumeModel& volume, const FlushToken& token, size_t first, size_t end) {
  const uint64_t range_end = token.offset_bytes + token.length_bytes;
  for (const size_t chunk : {token.offset_bytes / chunk_bytes_, range_end / chunk_bytes_}) {
    const bool whole = chunk >= first && chunk < end;
    if (whole || chunk >= volume.chunks.size()) {
      continue;
    }
    const uint64_t at = uint64_t{chunk} * chunk_bytes_;
    const uint64_t from = std::max(token.offset_bytes, at);
    const uint64_t to = std::min(range_end, at + chunk_bytes_);
    if (from < to) {
      volume.chunks[chunk].PartFlushed(token.called, from - at, to - at);
    }
  }
}

void Oracle::EndFlush(const FlushToken& token, bool stable) {
  ++now_;
  const bool stable_too = stable || !separate_stable_;
  if (token.key == kAllVolumes && stable_too) {
    std::erase_if(earlier_, [&](const auto& table) { return table.first < token.called; });
  }
  for (const auto& [key, volume] : volumes_) {
    if (token.key != kAllVolumes && token.key != key) {
      continue;
    }
    size_t first = 0;
    size_t end = volume->chunks.size();
    if (token.key != kAllVolumes) {
      const uint64_t range_end = token.offset_bytes + token.length_bytes;
      first = DivideUp(token.offset_bytes, chunk_bytes_);
      end = std::min<size_t>(end, range_end >= volume->size_bytes ? end : range_end / chunk_bytes_);
      FlushEnds(*volume, token, first, end);
    } else if (stable && volume->reshaped_at < token.called) {
      volume->reshaped = false;
    }
    for (size_t i = first; i < end; ++i) {
      volume->chunks[i].Flushed(token.called, stable_too, OldestReader());
    }
  }
}

// ------------------------------------------------------------------------------------------ after
// a crash

void Oracle::Crashed() {
  readers_.clear();
  change_running_ = false;
}

std::string Oracle::JudgeFound(const Match& match, uint64_t offset_bytes,
                               std::span<const std::byte> got, bool weak) const {
  const VolumeModel& volume = *volumes_.at(match.key);
  EPLOG_CHECK(offset_bytes % chunk_bytes_ == 0, "content is judged by whole chunks");
  static const ChunkModel kZero;  // a chunk that an unresolved change has added
  for (size_t chunk = offset_bytes / chunk_bytes_; !got.empty(); ++chunk) {
    const auto piece = got.first(std::min<size_t>(got.size(), chunk_bytes_));
    const ChunkModel& model = chunk < volume.chunks.size() ? volume.chunks[chunk] : kZero;
    if (!model.MayBeFound(piece, weak, match.since)) {
      return std::string(weak ? "P2 (log): " : "P2/P3: ") + "volume " + volume.name + " chunk " +
             std::to_string(chunk) + " holds {" + Describe(piece) + "}, allowed " +
             model.Allowed(weak);
    }
    got = got.subspan(piece.size());
  }
  return "";
}

bool Oracle::IsDurable(const Match& match, uint64_t offset_bytes) const {
  const VolumeModel& volume = *volumes_.at(match.key);
  const uint64_t chunk = offset_bytes / chunk_bytes_;
  return chunk < volume.chunks.size() && volume.chunks[chunk].IsDurable();
}

void Oracle::AdoptFound(VolumeKey key, uint64_t offset_bytes, std::span<const std::byte> got) {
  VolumeModel& volume = *Find(key);
  ++now_;
  for (size_t chunk = offset_bytes / chunk_bytes_; !got.empty(); ++chunk) {
    const auto piece = got.first(std::min<size_t>(got.size(), chunk_bytes_));
    Content content;
    const bool zero =
        std::all_of(piece.begin(), piece.end(), [](auto b) { return b == std::byte{0}; });
    if (!zero) {
      std::vector<std::byte> whole(piece.begin(), piece.end());
      whole.resize(chunk_bytes_);
      content = std::make_shared<const std::vector<std::byte>>(std::move(whole));
    }
    volume.chunks[chunk].Found(now_, std::move(content));
    got = got.subspan(piece.size());
  }
}

}  // namespace eplog::torture
