// From a profile to requests.
#include <algorithm>
#include <numeric>

#include "base/random.h"
#include "trace/profile.h"
#include "trace/zipf.h"

namespace eplog {
namespace {

// An order of [0, count) that jumps: neighbours in the order lie far apart.
class Scatter {
 public:
  Scatter(uint64_t count, Random& random) : count_(count), first_(random.Below(count)) {
    // The golden section of the range, or the next number without a common divisor.
    step_ = std::max<uint64_t>(
        static_cast<uint64_t>(static_cast<unsigned __int128>(count) * 618'033'989 / 1'000'000'000),
        1);
    while (std::gcd(step_, count_) != 1) {
      ++step_;
    }
  }
  [[nodiscard]] uint64_t At(uint64_t i) const {
    const auto product = static_cast<unsigned __int128>(i % count_) * step_;
    return static_cast<uint64_t>((product + first_) % count_);
  }

 private:
  uint64_t count_;
  uint64_t first_;
  uint64_t step_ = 1;
};

class StreamMaker {
 public:
  StreamMaker(const ProfileStream& stream, Random& random)
      : stream_(stream),
        zipf_(std::max<uint64_t>(stream.objects, 1), stream.skew_milli),
        scatter_(std::max<uint64_t>(Range() / std::max<uint64_t>(PlaceBytes(), 1), 1), random),
        runs_(stream.runs) {
    for (const ProfileSize& size : stream_.sizes) {
      size_weights_ += size.weight;
    }
    if (stream_.kind == ProfileStream::Kind::kZipf) {
      for (uint64_t i = 0; i < stream_.objects; ++i) {
        places_.push_back(scatter_.At(used_++));
      }
    }
  }

  TraceRequest Make(Random& random) {
    TraceRequest request;
    const bool reads = stream_.read_percent != 0 && random.Below(100) < stream_.read_percent;
    request.op = reads ? TraceOp::kRead : stream_.op;
    request.fua = stream_.fua && request.op == TraceOp::kWrite;
    request.length_bytes = DrawSize(random);
    switch (stream_.kind) {
      case ProfileStream::Kind::kUniform:
        request.offset_bytes =
            Within(stream_.begin_bytes, stream_.end_bytes, request.length_bytes, random);
        break;
      case ProfileStream::Kind::kZipf:
        request.offset_bytes = OnObject(request.length_bytes, random);
        break;
      case ProfileStream::Kind::kSequential:
        request.offset_bytes = InRun(request.length_bytes, random);
        break;
    }
    return request;
  }

 private:
  struct Run {
    uint64_t next_bytes = 0;
    uint64_t left_bytes = 0;
  };

  [[nodiscard]] uint64_t Range() const { return stream_.end_bytes - stream_.begin_bytes; }
  [[nodiscard]] uint64_t PlaceBytes() const {
    return stream_.kind == ProfileStream::Kind::kZipf ? stream_.object_bytes : stream_.run_bytes;
  }

  uint64_t DrawSize(Random& random) const {
    uint64_t at = random.Below(size_weights_);
    for (const ProfileSize& size : stream_.sizes) {
      if (at < size.weight) {
        return size.bytes;
      }
      at -= size.weight;
    }
    return stream_.sizes.back().bytes;
  }

  // An aligned place for `length` bytes between `begin` and `end`; at `begin` if they do not fit.
  [[nodiscard]] uint64_t Within(uint64_t begin, uint64_t end, uint64_t length,
                                Random& random) const {
    const uint64_t room = end - begin > length ? (end - begin - length) / stream_.align_bytes : 0;
    return begin + random.Below(room + 1) * stream_.align_bytes;
  }

  uint64_t OnObject(uint64_t length, Random& random) {
    if (stream_.drift_every != 0 && ++since_drift_ == stream_.drift_every) {
      since_drift_ = 0;
      places_[random.Below(places_.size())] = scatter_.At(used_++);  // to where it is coldest
    }
    const uint64_t place = places_[zipf_.Draw(random)];
    const uint64_t begin = stream_.begin_bytes + place * stream_.object_bytes;
    return std::min(Within(begin, begin + stream_.object_bytes, length, random),
                    stream_.end_bytes - length);
  }

  uint64_t InRun(uint64_t length, Random& random) {
    Run& run = runs_.size() == 1 ? runs_.front() : runs_[random.Below(runs_.size())];
    if (run.left_bytes == 0) {
      const uint64_t place = stream_.scattered ? random.Below(Places()) : used_ % Places();
      ++used_;
      run.next_bytes = stream_.begin_bytes + place * stream_.run_bytes;
      run.left_bytes = stream_.run_bytes;
    }
    const uint64_t taken = std::min(length, run.left_bytes);
    const uint64_t offset = std::min(run.next_bytes, stream_.end_bytes - length);
    run.next_bytes += taken;
    run.left_bytes -= taken;
    return offset;
  }
  [[nodiscard]] uint64_t Places() const {
    return std::max<uint64_t>((Range() + stream_.run_bytes - 1) / stream_.run_bytes, 1);
  }

  ProfileStream stream_;
  ZipfTable zipf_;
  Scatter scatter_;
  std::vector<uint64_t> places_;  // of objects by rank, in units of objects
  uint64_t used_ = 0;             // places given out so far
  uint64_t since_drift_ = 0;
  std::vector<Run> runs_;
  uint64_t size_weights_ = 0;
};

class Generator final : public TraceSource {
 public:
  explicit Generator(Profile profile)
      : profile_(std::move(profile)), random_(profile_.seed), volumes_{profile_.name} {
    for (const ProfileStream& stream : profile_.streams) {
      streams_.emplace_back(stream, random_);
      weights_ += stream.weight;
    }
  }

  Result<size_t> Read(std::span<TraceRequest> out) override {
    size_t count = 0;
    while (count < out.size() && (flush_due_ || !AtEnd())) {
      out[count++] = flush_due_ ? Flush() : Next();
    }
    report_.records += count;
    report_.requests += count;
    return count;
  }
  [[nodiscard]] const std::vector<std::string>& volumes() const override { return volumes_; }
  [[nodiscard]] const TraceReport& report() const override { return report_; }
  [[nodiscard]] std::string format() const override { return "profile"; }
  [[nodiscard]] bool has_times() const override { return profile_.mean_interval_us != 0; }
  [[nodiscard]] std::optional<uint64_t> working_set_bytes() const override {
    return profile_.working_set_bytes;
  }
  [[nodiscard]] Progress progress() const override {
    return profile_.writes != 0 ? Progress{writes_, profile_.writes}
                                : Progress{made_, profile_.requests};
  }

 private:
  [[nodiscard]] bool AtEnd() const {
    return profile_.writes != 0 ? writes_ == profile_.writes : made_ == profile_.requests;
  }

  TraceRequest Next() {
    uint64_t at = random_.Below(weights_);
    size_t which = 0;
    while (at >= profile_.streams[which].weight) {
      at -= profile_.streams[which++].weight;
    }
    TraceRequest request = streams_[which].Make(random_);
    if (made_ != 0) {
      time_us_ += Interval();
    }
    request.time_us = time_us_;
    ++made_;
    if (request.op == TraceOp::kWrite) {
      ++writes_;
      flush_due_ = profile_.flush_every != 0 && writes_ % profile_.flush_every == 0;
    }
    return request;
  }

  TraceRequest Flush() {
    flush_due_ = false;
    TraceRequest request;
    request.op = TraceOp::kFlush;
    request.time_us = time_us_;
    return request;
  }

  // -ln(u) times the mean, u uniform in (0, 1].
  uint64_t Interval() {
    if (profile_.mean_interval_us == 0) {
      return 0;
    }
    constexpr uint64_t kLn2Q32 = 2'977'044'472;  // 2 ^ 32 * ln 2
    const uint64_t u = (random_.Next() >> 32) + 1;
    const uint64_t bits = (uint64_t{32} << 32) - Log2Q32(u);  // -log2(u), times 2 ^ 32
    return static_cast<uint64_t>(
        (static_cast<unsigned __int128>(bits) * kLn2Q32 >> 32) * profile_.mean_interval_us >> 32);
  }

  Profile profile_;
  Random random_;
  std::vector<StreamMaker> streams_;
  uint64_t weights_ = 0;
  std::vector<std::string> volumes_;
  TraceReport report_;
  uint64_t time_us_ = 0;
  uint64_t made_ = 0;
  uint64_t writes_ = 0;
  bool flush_due_ = false;
};

}  // namespace

std::unique_ptr<TraceSource> MakeGenerator(Profile profile) {
  return std::make_unique<Generator>(std::move(profile));
}

}  // namespace eplog
