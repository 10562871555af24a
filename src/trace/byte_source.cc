#include "trace/byte_source.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <lzma.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

#include <algorithm>
#include <cerrno>
#include <string_view>
#include <vector>

namespace eplog {
namespace {

constexpr size_t kSourceBufferBytes = size_t{256} << 10;
// What a decompressor may take: enough for `xz -9` and `zstd --long=27`.
constexpr uint64_t kMaxXzMemoryBytes = uint64_t{256} << 20;
constexpr int kMaxZstdWindowLog = 27;

class FileBytes final : public ByteSource {
 public:
  FileBytes(int fd, uint64_t total, std::string name)
      : fd_(fd), total_(total), name_(std::move(name)) {}
  FileBytes(const FileBytes&) = delete;
  FileBytes& operator=(const FileBytes&) = delete;
  ~FileBytes() override {
    if (fd_ != STDIN_FILENO) {
      ::close(fd_);
    }
  }

  Result<size_t> Read(std::span<char> out) override {
    for (;;) {
      const ssize_t got = ::read(fd_, out.data(), out.size());
      if (got >= 0) {
        done_ += static_cast<uint64_t>(got);
        return static_cast<size_t>(got);
      }
      if (errno != EINTR) {
        return FailErrno(errno, fmt::format("{} cannot be read", name_));
      }
    }
  }
  [[nodiscard]] uint64_t done_bytes() const override { return done_; }
  [[nodiscard]] uint64_t total_bytes() const override { return total_; }

 private:
  int fd_;
  uint64_t done_ = 0;
  uint64_t total_;
  std::string name_;
};

class MemoryBytes final : public ByteSource {
 public:
  explicit MemoryBytes(std::span<const char> bytes) : bytes_(bytes) {}
  Result<size_t> Read(std::span<char> out) override {
    const size_t count = std::min(out.size(), bytes_.size() - done_);
    std::copy_n(bytes_.begin() + static_cast<std::ptrdiff_t>(done_), count, out.begin());
    done_ += count;
    return count;
  }
  [[nodiscard]] uint64_t done_bytes() const override { return done_; }
  [[nodiscard]] uint64_t total_bytes() const override { return bytes_.size(); }

 private:
  std::span<const char> bytes_;
  size_t done_ = 0;
};

tl::unexpected<Error> Damaged(std::string_view kind, bool early) {
  return Fail(
      ErrorCode::kCorrupt,
      early ? fmt::format("the {} data ends too early; the file was cut off: get it again", kind)
            : fmt::format("the {} data is damaged: get the file again", kind));
}

// ---- one decompressor a kind. Step() takes input and gives output as far as both go.

struct Step {
  size_t taken = 0;
  size_t given = 0;
  bool at_end = false;  // the data may end here
};

class Gunzip {
 public:
  static constexpr std::string_view kName = "gzip";
  Gunzip() { good_ = ::inflateInit2(&stream_, 15 + 16) == Z_OK; }
  Gunzip(const Gunzip&) = delete;
  Gunzip& operator=(const Gunzip&) = delete;
  ~Gunzip() { ::inflateEnd(&stream_); }
  Result<Step> Run(std::span<const char> in, std::span<char> out, bool /*last*/) {
    if (!good_) {
      return Fail(ErrorCode::kIo, "no memory to unpack gzip data");
    }
    if (ended_ && !in.empty()) {  // one member after another is one file
      ::inflateReset(&stream_);
      ended_ = false;
    }
    stream_.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(in.data()));
    stream_.avail_in = static_cast<uInt>(in.size());
    stream_.next_out = reinterpret_cast<Bytef*>(out.data());
    stream_.avail_out = static_cast<uInt>(out.size());
    const int code = ended_ ? Z_STREAM_END : ::inflate(&stream_, Z_NO_FLUSH);
    if (code != Z_OK && code != Z_STREAM_END && code != Z_BUF_ERROR) {
      return Damaged(kName, false);
    }
    ended_ = code == Z_STREAM_END;
    return Step{in.size() - stream_.avail_in, out.size() - stream_.avail_out, ended_};
  }

 private:
  z_stream stream_{};
  bool good_ = false;
  bool ended_ = false;
};

class Unxz {
 public:
  static constexpr std::string_view kName = "xz";
  Unxz() {
    good_ = ::lzma_stream_decoder(&stream_, kMaxXzMemoryBytes, LZMA_CONCATENATED) == LZMA_OK;
  }
  Unxz(const Unxz&) = delete;
  Unxz& operator=(const Unxz&) = delete;
  ~Unxz() { ::lzma_end(&stream_); }
  Result<Step> Run(std::span<const char> in, std::span<char> out, bool last) {
    if (!good_) {
      return Fail(ErrorCode::kIo, "no memory to unpack xz data");
    }
    stream_.next_in = reinterpret_cast<const uint8_t*>(in.data());
    stream_.avail_in = in.size();
    stream_.next_out = reinterpret_cast<uint8_t*>(out.data());
    stream_.avail_out = out.size();
    const lzma_ret code =
        ended_ ? LZMA_STREAM_END : ::lzma_code(&stream_, last ? LZMA_FINISH : LZMA_RUN);
    if (code == LZMA_MEMLIMIT_ERROR) {
      return Fail(ErrorCode::kUnsupported,
                  fmt::format("unpacking this xz data takes more than {} MiB of memory: pack it "
                              "again with xz -9 or less",
                              kMaxXzMemoryBytes >> 20));
    }
    if (code != LZMA_OK && code != LZMA_STREAM_END && code != LZMA_BUF_ERROR) {
      return Damaged(kName, false);
    }
    ended_ = code == LZMA_STREAM_END;
    return Step{in.size() - stream_.avail_in, out.size() - stream_.avail_out, ended_};
  }

 private:
  lzma_stream stream_ = LZMA_STREAM_INIT;
  bool good_ = false;
  bool ended_ = false;
};

class Unzstd {
 public:
  static constexpr std::string_view kName = "zstd";
  Unzstd() : stream_(::ZSTD_createDStream()) {
    if (stream_ != nullptr) {
      ::ZSTD_DCtx_setParameter(stream_, ZSTD_d_windowLogMax, kMaxZstdWindowLog);
    }
  }
  Unzstd(const Unzstd&) = delete;
  Unzstd& operator=(const Unzstd&) = delete;
  ~Unzstd() { ::ZSTD_freeDStream(stream_); }
  Result<Step> Run(std::span<const char> in, std::span<char> out, bool /*last*/) {
    if (stream_ == nullptr) {
      return Fail(ErrorCode::kIo, "no memory to unpack zstd data");
    }
    ZSTD_inBuffer from{in.data(), in.size(), 0};
    ZSTD_outBuffer to{out.data(), out.size(), 0};
    if (ended_ && in.empty()) {
      return Step{0, 0, true};
    }
    const size_t left = ::ZSTD_decompressStream(stream_, &to, &from);
    if (::ZSTD_isError(left) != 0U) {
      return Damaged(kName, false);
    }
    ended_ = left == 0;
    return Step{from.pos, to.pos, ended_};
  }

 private:
  ZSTD_DStream* stream_;
  bool ended_ = false;
};

template <typename Unpacker>
class Unpacked final : public ByteSource {
 public:
  explicit Unpacked(std::unique_ptr<ByteSource> below) : below_(std::move(below)) {}

  Result<size_t> Read(std::span<char> out) override {
    for (;;) {
      if (at_ == size_ && !last_) {
        auto got = below_->Read(buffer_);
        EPLOG_TRY(got);
        at_ = 0;
        size_ = *got;
        last_ = *got == 0;
      }
      auto step =
          unpacker_.Run(std::span<const char>(buffer_).subspan(at_, size_ - at_), out, last_);
      EPLOG_TRY(step);
      at_ += step->taken;
      if (step->given != 0) {
        return step->given;
      }
      if (step->taken != 0 || (at_ == size_ && !last_)) {
        continue;
      }
      if (last_ && step->at_end) {
        return 0;
      }
      return Damaged(Unpacker::kName, last_);
    }
  }
  [[nodiscard]] uint64_t done_bytes() const override { return below_->done_bytes(); }
  [[nodiscard]] uint64_t total_bytes() const override { return below_->total_bytes(); }

 private:
  std::unique_ptr<ByteSource> below_;
  Unpacker unpacker_;
  std::vector<char> buffer_ = std::vector<char>(kSourceBufferBytes);
  size_t at_ = 0;
  size_t size_ = 0;
  bool last_ = false;
};

// Gives out again what was read to recognise the packing.
class Rewound final : public ByteSource {
 public:
  Rewound(std::string head, std::unique_ptr<ByteSource> below)
      : head_(std::move(head)), below_(std::move(below)) {}
  Result<size_t> Read(std::span<char> out) override {
    if (at_ == head_.size()) {
      return below_->Read(out);
    }
    const size_t count = std::min(out.size(), head_.size() - at_);
    std::copy_n(head_.begin() + static_cast<std::ptrdiff_t>(at_), count, out.begin());
    at_ += count;
    return count;
  }
  [[nodiscard]] uint64_t done_bytes() const override { return below_->done_bytes(); }
  [[nodiscard]] uint64_t total_bytes() const override { return below_->total_bytes(); }

 private:
  std::string head_;
  size_t at_ = 0;
  std::unique_ptr<ByteSource> below_;
};

Result<std::unique_ptr<ByteSource>> Unpack(std::unique_ptr<ByteSource> below) {
  constexpr std::string_view kGzip("\x1F\x8B", 2);
  constexpr std::string_view kXz(
      "\xFD"
      "7zXZ\0",
      6);
  constexpr std::string_view kZstd("\x28\xB5\x2F\xFD", 4);
  std::string head(kXz.size(), '\0');
  size_t size = 0;
  while (size < head.size()) {
    auto got = below->Read(std::span(head).subspan(size));
    EPLOG_TRY(got);
    if (*got == 0) {
      break;
    }
    size += *got;
  }
  head.resize(size);
  if (head.empty()) {
    return Fail(ErrorCode::kCorrupt, "it is empty: no trace");
  }
  const std::string_view view(head);
  const bool gzip = view.starts_with(kGzip);
  const bool xz = view.starts_with(kXz);
  const bool zstd = view.starts_with(kZstd);
  std::unique_ptr<ByteSource> all = std::make_unique<Rewound>(head, std::move(below));
  if (gzip) {
    all = std::make_unique<Unpacked<Gunzip>>(std::move(all));
  } else if (xz) {
    all = std::make_unique<Unpacked<Unxz>>(std::move(all));
  } else if (zstd) {
    all = std::make_unique<Unpacked<Unzstd>>(std::move(all));
  }
  return all;
}

}  // namespace

Result<std::unique_ptr<ByteSource>> OpenByteSource(const std::string& path) {
  if (path == "-") {
    return Unpack(std::make_unique<FileBytes>(STDIN_FILENO, 0, "standard input"));
  }
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) {
    if (errno == ENOENT) {
      return Fail(ErrorCode::kNotFound, "there is no such file");
    }
    return FailErrno(errno, "it cannot be opened");
  }
  struct stat info {};
  const bool known = ::fstat(fd, &info) == 0;
  auto file = std::make_unique<FileBytes>(
      fd, known && S_ISREG(info.st_mode) ? static_cast<uint64_t>(info.st_size) : 0, "it");
  if (known && S_ISDIR(info.st_mode)) {
    return Fail(ErrorCode::kInvalidArgument, "it is a directory: name the trace file in it");
  }
  return Unpack(std::move(file));
}

Result<std::unique_ptr<ByteSource>> MemoryByteSource(std::span<const char> bytes) {
  return Unpack(std::make_unique<MemoryBytes>(bytes));
}

}  // namespace eplog
