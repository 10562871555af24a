#include "tests/erasure/oracle.h"

#include <algorithm>

namespace eplog::oracle {

uint8_t Multiply(uint8_t a, uint8_t b) {
  uint32_t product = 0;
  for (uint32_t bit = 0; bit < 8; ++bit) {
    if ((b >> bit & 1) != 0) {
      product ^= uint32_t{a} << bit;
    }
  }
  for (uint32_t bit = 14; bit >= 8; --bit) {
    if ((product >> bit & 1) != 0) {
      product ^= 0x11DU << (bit - 8);
    }
  }
  return static_cast<uint8_t>(product);
}

uint8_t Divide(uint8_t a, uint8_t b) {
  for (uint32_t quotient = 0; quotient < 256; ++quotient) {
    if (Multiply(static_cast<uint8_t>(quotient), b) == a) {
      return static_cast<uint8_t>(quotient);
    }
  }
  return 0;
}

uint8_t PowerOfTwo(uint32_t exponent) {
  uint8_t power = 1;
  while (exponent-- > 0) {
    power = Multiply(power, 2);
  }
  return power;
}

uint8_t Coefficient(uint32_t j, uint32_t i) {
  const uint8_t power = PowerOfTwo(i);
  switch (j) {
    case 0:
      return 1;
    case 1:
      return power;
    case 2:
      return Divide(Multiply(1 ^ 2, power), static_cast<uint8_t>(1 ^ Multiply(2, power)));
    default:
      return Divide(Multiply(1 ^ 4, power), static_cast<uint8_t>(1 ^ Multiply(4, power)));
  }
}

Matrix Generator(uint32_t d, uint32_t m) {
  Matrix rows(d + m, Row(d, 0));
  for (uint32_t i = 0; i < d; ++i) {
    rows[i][i] = 1;
    for (uint32_t j = 0; j < m; ++j) {
      rows[d + j][i] = Coefficient(j, i);
    }
  }
  return rows;
}

std::optional<Matrix> Invert(Matrix matrix) {
  const size_t size = matrix.size();
  Matrix inverse(size, Row(size, 0));
  for (size_t i = 0; i < size; ++i) {
    inverse[i][i] = 1;
  }
  for (size_t column = 0; column < size; ++column) {
    size_t pivot = column;
    while (pivot < size && matrix[pivot][column] == 0) {
      ++pivot;
    }
    if (pivot == size) {
      return std::nullopt;
    }
    std::swap(matrix[column], matrix[pivot]);
    std::swap(inverse[column], inverse[pivot]);
    const uint8_t scale = Divide(1, matrix[column][column]);
    for (size_t i = 0; i < size; ++i) {
      matrix[column][i] = Multiply(matrix[column][i], scale);
      inverse[column][i] = Multiply(inverse[column][i], scale);
    }
    for (size_t row = 0; row < size; ++row) {
      const uint8_t factor = matrix[row][column];
      if (row == column || factor == 0) {
        continue;
      }
      for (size_t i = 0; i < size; ++i) {
        matrix[row][i] ^= Multiply(factor, matrix[column][i]);
        inverse[row][i] ^= Multiply(factor, inverse[column][i]);
      }
    }
  }
  return inverse;
}

std::vector<Bytes> Apply(const Matrix& matrix, const std::vector<Bytes>& chunks) {
  const size_t bytes = chunks.front().size();
  std::vector<Bytes> result;
  for (const Row& row : matrix) {
    Bytes sum(bytes, std::byte{0});
    for (size_t i = 0; i < row.size(); ++i) {
      uint8_t products[256];  // of this one factor
      for (uint32_t value = 0; value < 256; ++value) {
        products[value] = Multiply(row[i], static_cast<uint8_t>(value));
      }
      for (size_t at = 0; at < bytes; ++at) {
        sum[at] ^= std::byte{products[static_cast<uint8_t>(chunks[i][at])]};
      }
    }
    result.push_back(std::move(sum));
  }
  return result;
}

std::vector<Bytes> Encode(const std::vector<Bytes>& data, uint32_t m) {
  return Apply(Generator(static_cast<uint32_t>(data.size()), m), data);
}

std::vector<Bytes> Decode(const std::vector<Bytes>& chunks, uint32_t d, uint64_t present) {
  const Matrix generator = Generator(d, static_cast<uint32_t>(chunks.size()) - d);
  Matrix rows;
  std::vector<Bytes> sources;
  for (size_t i = chunks.size(); i-- > 0 && rows.size() < d;) {
    if ((present >> i & 1) != 0) {
      rows.push_back(generator[i]);
      sources.push_back(chunks[i]);
    }
  }
  return Apply(generator, Apply(*Invert(rows), sources));
}

}  // namespace eplog::oracle
