// From bytes to requests, one format a decoder. Knows no files: TraceFile feeds it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "trace/format.h"
#include "trace/request.h"

namespace eplog {

// Disks by name, numbered in order of appearance.
class VolumeNames {
 public:
  // nullopt: it would be more than kMaxTraceVolumes.
  std::optional<uint32_t> Find(std::string_view name) {
    if (!names_.empty() && names_[last_] == name) {
      return last_;
    }
    return Search(name);
  }
  [[nodiscard]] const std::vector<std::string>& names() const { return names_; }

 private:
  std::optional<uint32_t> Search(std::string_view name);

  std::vector<std::string> names_;
  std::unordered_map<std::string, uint32_t> index_;
  uint32_t last_ = 0;
};

class Decoder {
 public:
  enum class Kind : uint8_t {
    kRequest,  // `request` is the next request; its time is raw, in microseconds
    kOther,    // something that is no request
    kNothing,  // a header, comment or blank line
    kBad,      // `reason` says why
    kMore,     // what is there is no whole record: more bytes, please
  };
  struct Step {
    Kind kind = Kind::kMore;
    size_t consumed = 0;
  };

  virtual ~Decoder() = default;
  // Decode one record from the front of `bytes`; `last`: there are no more bytes behind them. Never
  // kMore when `last`, but for no bytes at all. Given kMaxRecordBytes it always gets on.
  virtual Step Next(std::string_view bytes, bool last) = 0;

  [[nodiscard]] const TraceRequest& request() const { return request_; }
  [[nodiscard]] const std::string& reason() const { return reason_; }
  // Of what was decoded last: the line or record, counted from 1.
  [[nodiscard]] uint64_t number() const { return number_; }
  [[nodiscard]] const std::vector<std::string>& volumes() const { return volumes_.names(); }
  [[nodiscard]] virtual bool is_text() const { return true; }
  [[nodiscard]] virtual bool has_times() const { return true; }

 protected:
  Step Bad(size_t consumed, std::string reason) {
    reason_ = std::move(reason);
    return {Kind::kBad, consumed};
  }

  TraceRequest request_;
  std::string reason_;
  uint64_t number_ = 0;
  VolumeNames volumes_;
};
inline constexpr size_t kMaxRecordBytes = size_t{64} << 10;

// `layout` is for kColumns, `blkparse_action` (Q, D, C, ...) for kBlkparse. Not for kDetect.
std::unique_ptr<Decoder> MakeDecoder(TraceFormat format, const ColumnLayout& layout,
                                     char blkparse_action);

// The format of a trace that begins with `head` (all of it if `whole`). kCorrupt says what it looks
// like and what to do.
Result<TraceFormat> DetectFormat(std::string_view head, bool whole);

namespace internal {
std::unique_ptr<Decoder> MakeMsrDecoder();
std::unique_ptr<Decoder> MakeSpcDecoder();
std::unique_ptr<Decoder> MakeFioDecoder(int version);
std::unique_ptr<Decoder> MakeBlkparseDecoder(char action);
std::unique_ptr<Decoder> MakeColumnDecoder(const ColumnLayout& layout);
std::unique_ptr<Decoder> MakeVscsiDecoder(int version);
std::unique_ptr<Decoder> MakeNbdDecoder();
}  // namespace internal

}  // namespace eplog
