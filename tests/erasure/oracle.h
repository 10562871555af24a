// A slow second opinion on the erasure code, from the definition in erasure/erasure.h alone: bytes
// are multiplied bit by bit and equations are solved by elimination. It shares no table and no
// function with the code under test.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace eplog::oracle {

using Bytes = std::vector<std::byte>;
using Row = std::vector<uint8_t>;
using Matrix = std::vector<Row>;  // rows of equal length

// GF(2^8) modulo 0x11d.
uint8_t Multiply(uint8_t a, uint8_t b);
uint8_t Divide(uint8_t a, uint8_t b);  // b != 0
uint8_t PowerOfTwo(uint32_t exponent);

// The coefficient of data position i in parity j, j < 4.
uint8_t Coefficient(uint32_t j, uint32_t i);

// d + m rows of d: the chunks of a stripe as sums of its data.
Matrix Generator(uint32_t d, uint32_t m);

// Nothing if the square matrix has no inverse.
std::optional<Matrix> Invert(Matrix matrix);

// matrix x chunks.
std::vector<Bytes> Apply(const Matrix& matrix, const std::vector<Bytes>& chunks);

// All d + m chunks from data.
std::vector<Bytes> Encode(const std::vector<Bytes>& data, uint32_t m);

// All d + m chunks from those in `present` (at least d bits, of which the highest d are used: the
// code under test prefers the lowest).
std::vector<Bytes> Decode(const std::vector<Bytes>& chunks, uint32_t d, uint64_t present);

}  // namespace eplog::oracle
