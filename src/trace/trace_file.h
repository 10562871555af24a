// A trace file as a source: bytes through a decoder, with the checks that all formats share.
#pragma once

#include <memory>
#include <string>

#include "trace/byte_source.h"
#include "trace/decoder.h"
#include "trace/open.h"

namespace eplog {

class TraceFile final : public TraceSource {
 public:
  // Reads the beginning, to recognise the format. `name` begins every message.
  static Result<std::unique_ptr<TraceSource>> Open(std::string name,
                                                   std::unique_ptr<ByteSource> bytes,
                                                   const TraceOptions& options);

  Result<size_t> Read(std::span<TraceRequest> out) override;
  [[nodiscard]] const std::vector<std::string>& volumes() const override {
    return decoder_->volumes();
  }
  [[nodiscard]] const TraceReport& report() const override { return report_; }
  [[nodiscard]] std::string format() const override { return TraceFormatName(options_.format); }
  [[nodiscard]] bool has_times() const override { return decoder_->has_times(); }
  [[nodiscard]] Progress progress() const override {
    return {bytes_->done_bytes(), bytes_->total_bytes()};
  }

 private:
  TraceFile(std::string name, std::unique_ptr<ByteSource> bytes, const TraceOptions& options);

  Status Recognise();
  Status Fill();
  Status TakeRequest(TraceRequest request, std::span<TraceRequest> out, size_t& count);
  Status Bad(std::string reason);
  // What is absurd about `request`; empty if nothing.
  [[nodiscard]] std::string Nonsense(const TraceRequest& request) const;
  [[nodiscard]] bool TooManyBad(uint64_t records) const;
  [[nodiscard]] tl::unexpected<Error> TooManyError() const;
  [[nodiscard]] Status AtEnd() const;

  std::string name_;
  std::unique_ptr<ByteSource> bytes_;
  TraceOptions options_;
  std::unique_ptr<Decoder> decoder_;
  TraceReport report_;
  std::unique_ptr<char[]> buffer_;  // kBufferBytes, touched as far as it is needed
  size_t at_ = 0;                   // of buffer_: not decoded yet
  size_t size_ = 0;                 // of buffer_: filled
  bool last_ = false;
  bool started_ = false;
  uint64_t base_us_ = 0;
  uint64_t latest_us_ = 0;
};

}  // namespace eplog
