// The erasure code of an array: d data chunks and m parity chunks, any d of the d + m give all the
// others. It knows bytes and positions; it knows nothing of stripes, devices, slots or CRCs.
//
// ONE FAMILY. The coefficient of data position i in parity j depends on i and j alone. A stripe
// over fewer chunks is the same code with zero chunks in the places that it lacks, so data stripes
// of any k and log stripes of 1 ... n members share one set of coefficients, and an absent member
// may simply be left out.
//
// COEFFICIENTS (part of the on-disk format). Bytes are elements of GF(2^8) modulo x^8 + x^4 + x^3 +
// x^2 + 1 (0x11d), where 2 is a generator; addition is XOR. All powers, products and the quotient
// below are taken in that field:
//
//     c(0, i) = 1
//     c(1, i) = 2^i
//     c(2, i) = (1 + 2) * 2^i / (1 + 2 * 2^i)
//     c(3, i) = (1 + 4) * 2^i / (1 + 4 * 2^i)            i = 0 ... 31
//
//     parity j = sum over i of c(j, i) * data i          byte by byte
//
// Parity 0 is thus plain XOR, and parity 0 and 1 are P and Q as RAID-6 is usually done. Why any d
// chunks suffice: write y = 2^-i; rows 1, 2 and 3 are 1 / (y + 0), 1 / (y + 2) and 1 / (y + 4),
// each times a constant that makes column 0 all ones: a Cauchy matrix, since 0, 2 and 4 are
// distinct and no y of 32 positions is one of them. Row 0 is the limit of such a row (its term
// grows without bound while it is scaled back), so every square part of the matrix keeps an
// inverse.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/types.h"
#include "eplog/result.h"

namespace eplog {

// Immutable after construction: any number of threads may use one. No call allocates on the heap
// (but to report an error). Chunks may have any alignment; inputs and outputs must not overlap. A
// size of 0 bytes does nothing.
class ErasureCode {
 public:
  // `max_data` (1 ... kMaxSsds): the largest number of data chunks that will be used, n for log
  // stripes. `parity` (1 ... kMaxParity): m.
  ErasureCode(uint32_t max_data, uint32_t parity);

  [[nodiscard]] uint32_t max_data() const { return max_data_; }
  [[nodiscard]] uint32_t parity() const { return parity_; }

  // c(parity_index, position) of the table above.
  [[nodiscard]] static uint8_t Coefficient(uint32_t parity_index, uint32_t position);

  // Computes the parity of data[i] at positions i = 0 ... data.size() - 1, each of `bytes`. A null
  // data pointer stands for a chunk of zeros and costs nothing; with no data at all the parity is
  // zeros. `parity` has exactly m pointers, overwritten.
  void Encode(std::span<const std::byte* const> data, std::span<std::byte* const> parity,
              size_t bytes) const;

  // parity[j] ^= c(j, position) * delta, for all m: the parity after data at `position` changed by
  // XOR of `delta`.
  void Update(uint32_t position, std::span<const std::byte> delta,
              std::span<std::byte* const> parity) const;

  // Recomputes erased chunks. `chunks` has d + m pointers: data positions 0 ... d-1, then parity.
  // Bit i of `present_mask` says that chunks[i] is valid: never written, and a null pointer stands
  // for a chunk of zeros. The content of every chunk of `wanted_mask` that is not present is
  // written to its pointer, which must not be null; pointers of other erased chunks are not looked
  // at, nor are bits for chunks beyond d + m. kTooManyFailures, with nothing written, if fewer than
  // d are present.
  [[nodiscard]] Status Decode(uint32_t d, std::span<std::byte* const> chunks, uint64_t present_mask,
                              uint64_t wanted_mask, size_t bytes) const;

 private:
  struct Combination;
  using FactorRows = std::array<std::array<uint8_t, kMaxSsds>, kMaxParity>;

  void SolveMissing(uint32_t d, const Combination& plan, FactorRows& rows) const;
  [[nodiscard]] Combination Solve(uint32_t d, uint64_t present_mask, uint64_t wanted_mask) const;
  [[nodiscard]] unsigned char* TablesFor(uint32_t d) const;

  uint32_t max_data_;
  uint32_t parity_;
  FactorRows coefficients_{};
  std::vector<unsigned char> tables_;  // the library's, for d = 1, 2 ... max_data
};

}  // namespace eplog
