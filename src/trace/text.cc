#include "trace/text.h"

#include <fmt/format.h>

#include <algorithm>

namespace eplog {
namespace {

std::string_view Trimmed(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) {
    text.remove_prefix(1);
  }
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t' || text.back() == '\r')) {
    text.remove_suffix(1);
  }
  return text;
}

bool IsSeparator(char c) {
  return c == ' ' || c == '\t' || c == ',' || c == ';';
}

}  // namespace

std::optional<uint32_t> VolumeNames::Search(std::string_view name) {
  const auto found = index_.find(std::string(name));
  if (found != index_.end()) {
    last_ = found->second;
    return last_;
  }
  if (names_.size() >= kMaxTraceVolumes) {
    return std::nullopt;
  }
  last_ = static_cast<uint32_t>(names_.size());
  names_.emplace_back(name);
  index_.emplace(names_.back(), last_);
  return last_;
}

bool ParseTime(std::string_view text, uint64_t nanoseconds, uint64_t& time_us) {
  const size_t point = text.find('.');
  uint64_t whole = 0;
  const bool no_whole = point == 0 && text.size() > 1;
  if (!no_whole && !ParseNumber(text.substr(0, point), whole)) {
    return false;
  }
  auto sum = static_cast<unsigned __int128>(whole) * nanoseconds;
  if (point != std::string_view::npos) {
    uint64_t unit = nanoseconds;
    for (const char c : text.substr(point + 1)) {
      const auto digit = static_cast<unsigned>(c - '0');
      if (digit > 9) {
        return false;
      }
      // Every unit is 1 or 100 times a power of ten nanoseconds; digits below one are nothing.
      unit /= 10;
      sum += static_cast<unsigned __int128>(digit) * unit;
    }
  }
  sum /= 1000;
  time_us = static_cast<uint64_t>(sum);
  return sum <= UINT64_MAX / 2;
}

std::string Shown(std::string_view text, size_t most) {
  std::string out(text.substr(0, most));
  for (char& c : out) {
    if (static_cast<unsigned char>(c) < 0x20 || static_cast<unsigned char>(c) > 0x7E) {
      c = '?';
    }
  }
  return text.size() > most ? out + "..." : out;
}

void Fields::SplitCommas(std::string_view line) {
  size_ = 0;
  const char* at = line.data();
  const char* const end = at + line.size();
  while (size_ < kMax) {
    const char* const begin = at;
    while (at != end && *at != ',') {
      ++at;
    }
    fields_[size_++] = Trimmed({begin, static_cast<size_t>(at - begin)});
    if (at == end) {
      return;
    }
    ++at;
  }
}

void Fields::SplitColumns(std::string_view line) {
  size_ = 0;
  const char* at = line.data();
  const char* const end = at + line.size();
  while (size_ < kMax) {
    while (at != end && IsSeparator(*at)) {
      ++at;
    }
    if (at == end) {
      return;
    }
    const char* const begin = at;
    while (at != end && !IsSeparator(*at)) {
      ++at;
    }
    fields_[size_++] = {begin, static_cast<size_t>(at - begin)};
  }
}

Decoder::Step LineDecoder::Next(std::string_view bytes, bool last) {
  if (follows_) {
    follows_ = false;
    request_ = following_;
    return {Kind::kRequest, 0};
  }
  const void* const newline =
      bytes.empty() ? nullptr : std::memchr(bytes.data(), '\n', bytes.size());
  size_t consumed = bytes.size();
  if (newline != nullptr) {
    consumed = static_cast<size_t>(static_cast<const char*>(newline) - bytes.data()) + 1;
  } else if (bytes.empty() || !last) {
    if (bytes.size() < kMaxRecordBytes) {
      return {Kind::kMore, 0};
    }
    const bool begins = !too_long_;
    too_long_ = true;
    if (!begins) {
      return {Kind::kNothing, consumed};
    }
    ++number_;
    return Decoder::Bad(consumed, fmt::format("a line of more than {} bytes", kMaxRecordBytes));
  }
  if (too_long_) {  // its end
    too_long_ = false;
    return {Kind::kNothing, consumed};
  }
  ++number_;
  std::string_view line = bytes.substr(0, consumed);
  while (!line.empty() && (line.back() == '\n' || line.back() == '\r')) {
    line.remove_suffix(1);
  }
  const size_t first = line.find_first_not_of(" \t");
  if (first == std::string_view::npos || line[first] == '#') {
    return {Kind::kNothing, consumed};
  }
  if (line.size() > kMaxRecordBytes) {
    return Decoder::Bad(consumed, fmt::format("a line of more than {} bytes", kMaxRecordBytes));
  }
  request_ = TraceRequest{};
  return {Line(line), consumed};
}

bool LineDecoder::TakeVolume(std::string_view name) {
  const auto volume = volumes_.Find(name);
  if (!volume) {
    reason_ = fmt::format("disk '{}' would be one more than the {} that a trace may have",
                          Shown(name), kMaxTraceVolumes);
    return false;
  }
  request_.volume = *volume;
  return true;
}

}  // namespace eplog
