// Bytes of a trace, whatever they come out of: a file, standard input or memory; plain, gzip, xz or
// zstd, recognised by their first bytes and not by the file's name. Streaming: one compressed
// buffer and the decompressor's window are all its memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "eplog/result.h"

namespace eplog {

class ByteSource {
 public:
  virtual ~ByteSource() = default;
  // Fills `out` from the front; 0 only at the end. kIo, or kCorrupt for compressed data that is
  // damaged or ends too early.
  virtual Result<size_t> Read(std::span<char> out) = 0;
  // Bytes read from below, of how many; total is 0 where that is unknown.
  [[nodiscard]] virtual uint64_t done_bytes() const = 0;
  [[nodiscard]] virtual uint64_t total_bytes() const = 0;
};

// `path`, or standard input for "-". kNotFound, kIo; kInvalidArgument for a directory. An empty
// file is kCorrupt.
Result<std::unique_ptr<ByteSource>> OpenByteSource(const std::string& path);
// The same for bytes in memory, which must outlive the source.
Result<std::unique_ptr<ByteSource>> MemoryByteSource(std::span<const char> bytes);

// Writes bytes to a file, compressed as the file's name says (.gz, .xz, .zst, anything else plain),
// or to standard output, plain, for "-".
class ByteSink {
 public:
  virtual ~ByteSink() = default;
  virtual Status Write(std::span<const char> bytes) = 0;
  // Everything is written and the file has its name; without it there is no such file.
  virtual Status Close() = 0;
};
// kExists: the file is there already and `replace` is false.
Result<std::unique_ptr<ByteSink>> OpenByteSink(const std::string& path, bool replace);

}  // namespace eplog
