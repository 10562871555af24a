// Chunks are combined by ISA-L. Its tables are an opaque format of its own (it differs between
// releases and processors), so they only ever come whole from ec_init_tables for the very shape
// they are used with.
#include "erasure/erasure.h"

#include <isa-l.h>

#include <algorithm>
#include <bit>
#include <climits>
#include <cstring>
#include <string>

#include "base/check.h"
#include "base/vector_unit.h"

namespace eplog {
namespace {

constexpr size_t kMaxSources = kMaxSsds;
constexpr size_t kMaxTargets = kMaxParity;
constexpr size_t kTableBytes = 32;  // per coefficient
// More than the library documents for XOR and P+Q: what its widest registers like.
constexpr size_t kFastAlignment = 64;

// What is read and then what is written in one call of the library, which wants them in one array.
class Operands {
 public:
  void AddSource(const std::byte* bytes) {
    Add(const_cast<std::byte*>(bytes));  // the library takes no const, but writes to no source
    ++sources_;
  }
  // Only after all the sources.
  void AddTarget(std::byte* bytes) {
    Add(bytes);
    ++targets_;
  }
  [[nodiscard]] uint32_t sources() const { return sources_; }
  [[nodiscard]] uint32_t targets() const { return targets_; }
  [[nodiscard]] unsigned char** from() { return all_.data(); }
  [[nodiscard]] unsigned char** to() { return all_.data() + sources_; }
  [[nodiscard]] void** all() { return reinterpret_cast<void**>(all_.data()); }
  [[nodiscard]] bool Aligned(size_t bytes) const {
    return (address_bits_ | bytes) % kFastAlignment == 0;
  }

 private:
  void Add(std::byte* bytes) {
    all_[sources_ + targets_] = reinterpret_cast<unsigned char*>(bytes);
    address_bits_ |= reinterpret_cast<uintptr_t>(bytes);
  }

  std::array<unsigned char*, kMaxSources + kMaxTargets> all_{};
  uint32_t sources_ = 0;
  uint32_t targets_ = 0;
  uintptr_t address_bits_ = 0;
};

// The first rows of the code over consecutive positions from 0, where there is a quicker way than
// tables: the first position has factor one in every row, row 0 is XOR, rows 0 and 1 are P and Q.
// Several times as fast. False: not done.
bool RunSpecial(Operands& operands, size_t bytes) {
  if (operands.sources() == 1) {
    for (uint32_t t = 0; t < operands.targets(); ++t) {
      std::memcpy(operands.to()[t], operands.from()[0], bytes);
    }
    return true;
  }
  if (operands.targets() > 2 || !operands.Aligned(bytes)) {
    return false;
  }
  const auto vectors = static_cast<int>(operands.sources() + operands.targets());
  const auto length = static_cast<int>(bytes);
  const int rc = operands.targets() == 1 ? xor_gen(vectors, length, operands.all())
                                         : pq_gen(vectors, length, operands.all());
  ReleaseVectorUnit();
  return rc == 0;
}

void RunTables(Operands& operands, unsigned char* tables, size_t bytes) {
  ec_encode_data(static_cast<int>(bytes), static_cast<int>(operands.sources()),
                 static_cast<int>(operands.targets()), tables, operands.from(), operands.to());
  ReleaseVectorUnit();
}

// `matrix` has a row of operands.sources() factors for each target.
void RunMatrix(Operands& operands, std::span<unsigned char> matrix, size_t bytes) {
  if (operands.sources() == 0) {
    for (uint32_t t = 0; t < operands.targets(); ++t) {
      std::memset(operands.to()[t], 0, bytes);
    }
    return;
  }
  // One lost data chunk beside parity 0, the usual case by far, is a plain XOR again.
  const bool ones = std::all_of(matrix.begin(), matrix.end(), [](uint8_t f) { return f == 1; });
  if (ones && (operands.targets() == 1 || operands.sources() == 1) && RunSpecial(operands, bytes)) {
    return;
  }
  // Not cleared first: it is 4 KiB, and written whole as far as it is read.
  // NOLINTNEXTLINE(cppcoreguidelines-pro-type-member-init)
  std::array<unsigned char, kMaxSources * kMaxTargets * kTableBytes> tables;
  ec_init_tables(static_cast<int>(operands.sources()), static_cast<int>(operands.targets()),
                 matrix.data(), tables.data());
  RunTables(operands, tables.data(), bytes);
}

void CheckBytes(size_t bytes) {
  EPLOG_CHECK(bytes <= INT_MAX, "chunk too large for the erasure code");
}

}  // namespace

// How wanted chunks follow from the present ones.
struct ErasureCode::Combination {
  // Of the d + m: d chunks, all present data in order, then as many parity chunks as data is
  // missing.
  std::array<uint32_t, kMaxSources> source{};
  std::array<uint32_t, kMaxTargets> missing{};  // data
  uint32_t missing_count = 0;
  std::array<uint32_t, kMaxTargets> target{};
  uint32_t targets = 0;
  FactorRows factor{};  // [target][source]
};

ErasureCode::ErasureCode(uint32_t max_data, uint32_t parity)
    : max_data_(max_data), parity_(parity) {
  EPLOG_CHECK(max_data >= 1 && max_data <= kMaxSsds, "number of data chunks");
  EPLOG_CHECK(parity >= 1 && parity <= kMaxParity, "number of parity chunks");
  for (uint32_t j = 0; j < kMaxParity; ++j) {
    for (uint32_t i = 0; i < kMaxSsds; ++i) {
      coefficients_[j][i] = Coefficient(j, i);
    }
  }
  tables_.resize(kTableBytes * parity * max_data * (max_data + 1) / 2);
  for (uint32_t d = 1; d <= max_data; ++d) {
    std::array<unsigned char, kMaxSources * kMaxTargets> matrix{};
    for (uint32_t j = 0; j < parity; ++j) {
      std::copy_n(coefficients_[j].data(), d, matrix.data() + size_t{j} * d);
    }
    ec_init_tables(static_cast<int>(d), static_cast<int>(parity), matrix.data(), TablesFor(d));
  }
}

uint8_t ErasureCode::Coefficient(uint32_t parity_index, uint32_t position) {
  EPLOG_CHECK(parity_index < kMaxParity && position < kMaxSsds, "coefficient out of range");
  if (parity_index == 0) {
    return 1;
  }
  uint8_t power = 1;
  for (uint32_t i = 0; i < position; ++i) {
    power = gf_mul(power, 2);
  }
  const auto x = static_cast<uint8_t>(2 * (parity_index - 1));  // 0, 2, 4
  const auto above = gf_mul(static_cast<uint8_t>(1 ^ x), power);
  const auto below = static_cast<uint8_t>(1 ^ gf_mul(x, power));
  return gf_mul(above, gf_inv(below));
}

unsigned char* ErasureCode::TablesFor(uint32_t d) const {
  // The library takes them without const and only reads them.
  return const_cast<unsigned char*>(tables_.data()) + kTableBytes * parity_ * d * (d - 1) / 2;
}

void ErasureCode::Encode(std::span<const std::byte* const> data, std::span<std::byte* const> parity,
                         size_t bytes) const {
  EPLOG_CHECK(data.size() <= max_data_ && parity.size() == parity_, "shape of a stripe");
  CheckBytes(bytes);
  if (bytes == 0) {
    return;
  }
  Operands operands;
  std::array<uint8_t, kMaxSources> position{};
  for (uint32_t i = 0; i < data.size(); ++i) {
    if (data[i] != nullptr) {
      position[operands.sources()] = static_cast<uint8_t>(i);
      operands.AddSource(data[i]);
    }
  }
  for (std::byte* chunk : parity) {
    operands.AddTarget(chunk);
  }
  // Parity 0 alone takes all positions alike.
  if (operands.sources() != 0 && (operands.sources() == data.size() || parity_ == 1)) {
    if (!RunSpecial(operands, bytes)) {
      RunTables(operands, TablesFor(operands.sources()), bytes);
    }
    return;
  }
  std::array<unsigned char, kMaxSources * kMaxTargets> matrix{};
  for (uint32_t j = 0; j < parity_; ++j) {
    for (uint32_t s = 0; s < operands.sources(); ++s) {
      matrix[j * operands.sources() + s] = coefficients_[j][position[s]];
    }
  }
  RunMatrix(operands, std::span(matrix).first(size_t{parity_} * operands.sources()), bytes);
}

void ErasureCode::Update(uint32_t position, std::span<const std::byte> delta,
                         std::span<std::byte* const> parity) const {
  EPLOG_CHECK(position < max_data_ && parity.size() == parity_, "shape of a stripe");
  CheckBytes(delta.size());
  if (delta.empty()) {
    return;
  }
  Operands operands;
  for (std::byte* chunk : parity) {
    operands.AddTarget(chunk);
  }
  ec_encode_data_update(
      static_cast<int>(delta.size()), static_cast<int>(max_data_), static_cast<int>(parity_),
      static_cast<int>(position), TablesFor(max_data_),
      const_cast<unsigned char*>(reinterpret_cast<const unsigned char*>(delta.data())),
      operands.to());
  ReleaseVectorUnit();
}

// With the present data taken out, the e parity chunks used are e equations for the e missing data
// chunks; the inverse gives each missing chunk as a sum over the sources. rows[c] are the factors
// of missing data chunk c.
void ErasureCode::SolveMissing(uint32_t d, const Combination& plan, FactorRows& rows) const {
  const uint32_t e = plan.missing_count;
  const uint32_t data_sources = d - e;
  const auto parity_used = [&](uint32_t r) { return plan.source[data_sources + r] - d; };
  std::array<uint8_t, kMaxTargets * kMaxTargets> equations{};
  std::array<uint8_t, kMaxTargets * kMaxTargets> inverse{};
  for (uint32_t r = 0; r < e; ++r) {
    for (uint32_t c = 0; c < e; ++c) {
      equations[r * e + c] = coefficients_[parity_used(r)][plan.missing[c]];
    }
  }
  const int rc = gf_invert_matrix(equations.data(), inverse.data(), static_cast<int>(e));
  EPLOG_CHECK(rc == 0, "the erasure code has a singular part");
  for (uint32_t c = 0; c < e; ++c) {
    for (uint32_t s = 0; s < data_sources; ++s) {
      uint8_t sum = 0;
      for (uint32_t r = 0; r < e; ++r) {
        sum ^= gf_mul(inverse[c * e + r], coefficients_[parity_used(r)][plan.source[s]]);
      }
      rows[c][s] = sum;
    }
    for (uint32_t r = 0; r < e; ++r) {
      rows[c][data_sources + r] = inverse[c * e + r];
    }
  }
}

ErasureCode::Combination ErasureCode::Solve(uint32_t d, uint64_t present_mask,
                                            uint64_t wanted_mask) const {
  Combination plan;
  uint32_t sources = 0;
  for (uint32_t i = 0; i < d; ++i) {
    if ((present_mask >> i & 1) != 0) {
      plan.source[sources++] = i;
    } else {
      plan.missing[plan.missing_count++] = i;
    }
  }
  const uint32_t data_sources = sources;
  for (uint32_t i = d; sources < d; ++i) {
    if ((present_mask >> i & 1) != 0) {
      plan.source[sources++] = i;
    }
  }
  FactorRows rows{};
  if (plan.missing_count != 0) {
    SolveMissing(d, plan, rows);
  }
  for (uint64_t rest = wanted_mask; rest != 0; rest &= rest - 1) {
    const auto want = static_cast<uint32_t>(std::countr_zero(rest));
    auto& row = plan.factor[plan.targets];
    plan.target[plan.targets++] = want;
    if (want < d) {
      const auto* found =
          std::find(plan.missing.data(), plan.missing.data() + plan.missing_count, want);
      row = rows[static_cast<size_t>(found - plan.missing.data())];
      continue;
    }
    // A parity chunk: its sum over the data, with each missing data chunk replaced by what that is
    // a sum of.
    const auto& factors = coefficients_[want - d];
    for (uint32_t s = 0; s < d; ++s) {
      uint8_t sum = s < data_sources ? factors[plan.source[s]] : uint8_t{0};
      for (uint32_t c = 0; c < plan.missing_count; ++c) {
        sum ^= gf_mul(factors[plan.missing[c]], rows[c][s]);
      }
      row[s] = sum;
    }
  }
  return plan;
}

Status ErasureCode::Decode(uint32_t d, std::span<std::byte* const> chunks, uint64_t present_mask,
                           uint64_t wanted_mask, size_t bytes) const {
  EPLOG_CHECK(d >= 1 && d <= max_data_ && chunks.size() == d + parity_, "shape of a stripe");
  CheckBytes(bytes);
  const uint64_t all = (uint64_t{1} << (d + parity_)) - 1;
  present_mask &= all;
  const auto present = static_cast<uint32_t>(std::popcount(present_mask));
  if (present < d) {
    return Fail(ErrorCode::kTooManyFailures,
                std::to_string(d + parity_ - present) + " of " + std::to_string(d + parity_) +
                    " chunks are lost, " + std::to_string(parity_) + " can be rebuilt");
  }
  wanted_mask &= all & ~present_mask;
  if (wanted_mask == 0 || bytes == 0) {
    return OkStatus();
  }

  const Combination plan = Solve(d, present_mask, wanted_mask);
  Operands operands;
  std::array<unsigned char, kMaxSources * kMaxTargets> matrix{};
  std::array<uint32_t, kMaxSources> used{};
  for (uint32_t s = 0; s < d; ++s) {
    if (chunks[plan.source[s]] != nullptr) {
      used[operands.sources()] = s;
      operands.AddSource(chunks[plan.source[s]]);
    }
  }
  for (uint32_t t = 0; t < plan.targets; ++t) {
    std::byte* to = chunks[plan.target[t]];
    EPLOG_CHECK(to != nullptr, "nowhere to put a decoded chunk");
    operands.AddTarget(to);
    for (uint32_t s = 0; s < operands.sources(); ++s) {
      matrix[t * operands.sources() + s] = plan.factor[t][used[s]];
    }
  }
  RunMatrix(operands, std::span(matrix).first(size_t{plan.targets} * operands.sources()), bytes);
  return OkStatus();
}

}  // namespace eplog
