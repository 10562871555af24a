// Bytes of a trace on their way to a file: plain, gzip, xz or zstd.
#include <fcntl.h>
#include <fmt/format.h>
#include <lzma.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

#include <cerrno>
#include <string_view>
#include <utility>
#include <vector>

#include "trace/byte_source.h"

namespace eplog {
namespace {

constexpr size_t kSinkBufferBytes = size_t{256} << 10;
constexpr int kGzipLevel = 6;
constexpr uint32_t kXzPreset = 6;
constexpr int kZstdLevel = 9;

// Writes beside the file that is meant and takes its name at the end, so that nobody sees half a
// file and one that was there is lost only to a whole one. What is no plain file is written
// directly.
class FileSink final : public ByteSink {
 public:
  FileSink(int fd, std::string path, std::string part)
      : fd_(fd), path_(std::move(path)), part_(std::move(part)) {}
  FileSink(const FileSink&) = delete;
  FileSink& operator=(const FileSink&) = delete;
  ~FileSink() override {
    if (fd_ >= 0 && fd_ != STDOUT_FILENO) {
      ::close(fd_);
    }
    if (!part_.empty()) {
      ::unlink(part_.c_str());
    }
  }

  Status Write(std::span<const char> bytes) override {
    while (!bytes.empty()) {
      const ssize_t put = ::write(fd_, bytes.data(), bytes.size());
      if (put < 0 && errno != EINTR) {
        return Cannot();
      }
      bytes = bytes.subspan(put < 0 ? 0 : static_cast<size_t>(put));
    }
    return OkStatus();
  }
  Status Close() override {
    const int fd = std::exchange(fd_, -1);
    if (fd >= 0 && fd != STDOUT_FILENO && ::close(fd) != 0) {
      return Cannot();
    }
    if (!part_.empty() && ::rename(part_.c_str(), path_.c_str()) != 0) {
      return Cannot();
    }
    part_.clear();
    return OkStatus();
  }

 private:
  [[nodiscard]] tl::unexpected<Error> Cannot() const {
    return FailErrno(errno, fmt::format("{} cannot be written", path_));
  }

  int fd_;
  std::string path_;
  std::string part_;  // the file that is written, if not path_
};

// ---- one compressor a kind: Run() packs all of `in`, handing what comes out to `emit`; with `end`
// it also finishes.

class Gzip {
 public:
  Gzip() {
    good_ =
        ::deflateInit2(&stream_, kGzipLevel, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY) == Z_OK;
  }
  Gzip(const Gzip&) = delete;
  Gzip& operator=(const Gzip&) = delete;
  ~Gzip() { ::deflateEnd(&stream_); }
  template <typename Emit>
  Status Run(std::span<const char> in, bool end, std::span<char> room, const Emit& emit) {
    stream_.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(in.data()));
    stream_.avail_in = static_cast<uInt>(in.size());
    for (int code = Z_OK; good_;) {
      stream_.next_out = reinterpret_cast<Bytef*>(room.data());
      stream_.avail_out = static_cast<uInt>(room.size());
      code = ::deflate(&stream_, end ? Z_FINISH : Z_NO_FLUSH);
      EPLOG_TRY(emit(room.first(room.size() - stream_.avail_out)));
      if (code == Z_STREAM_END || (!end && stream_.avail_in == 0 && stream_.avail_out != 0)) {
        return OkStatus();
      }
      good_ = code == Z_OK || code == Z_BUF_ERROR;
    }
    return Fail(ErrorCode::kIo, "gzip cannot pack");
  }

 private:
  z_stream stream_{};
  bool good_ = false;
};

class Xz {
 public:
  Xz() { good_ = ::lzma_easy_encoder(&stream_, kXzPreset, LZMA_CHECK_CRC64) == LZMA_OK; }
  Xz(const Xz&) = delete;
  Xz& operator=(const Xz&) = delete;
  ~Xz() { ::lzma_end(&stream_); }
  template <typename Emit>
  Status Run(std::span<const char> in, bool end, std::span<char> room, const Emit& emit) {
    stream_.next_in = reinterpret_cast<const uint8_t*>(in.data());
    stream_.avail_in = in.size();
    while (good_) {
      stream_.next_out = reinterpret_cast<uint8_t*>(room.data());
      stream_.avail_out = room.size();
      const lzma_ret code = ::lzma_code(&stream_, end ? LZMA_FINISH : LZMA_RUN);
      EPLOG_TRY(emit(room.first(room.size() - stream_.avail_out)));
      if (code == LZMA_STREAM_END || (!end && stream_.avail_in == 0 && stream_.avail_out != 0)) {
        return OkStatus();
      }
      good_ = code == LZMA_OK;
    }
    return Fail(ErrorCode::kIo, "xz cannot pack");
  }

 private:
  lzma_stream stream_ = LZMA_STREAM_INIT;
  bool good_ = false;
};

class Zstd {
 public:
  Zstd() : stream_(::ZSTD_createCStream()) {
    if (stream_ != nullptr) {
      ::ZSTD_CCtx_setParameter(stream_, ZSTD_c_compressionLevel, kZstdLevel);
      ::ZSTD_CCtx_setParameter(stream_, ZSTD_c_checksumFlag, 1);
    }
  }
  Zstd(const Zstd&) = delete;
  Zstd& operator=(const Zstd&) = delete;
  ~Zstd() { ::ZSTD_freeCStream(stream_); }
  template <typename Emit>
  Status Run(std::span<const char> in, bool end, std::span<char> room, const Emit& emit) {
    ZSTD_inBuffer from{in.data(), in.size(), 0};
    while (stream_ != nullptr) {
      ZSTD_outBuffer to{room.data(), room.size(), 0};
      const size_t left =
          ::ZSTD_compressStream2(stream_, &to, &from, end ? ZSTD_e_end : ZSTD_e_continue);
      if (::ZSTD_isError(left) != 0U) {
        break;
      }
      EPLOG_TRY(emit(room.first(to.pos)));
      if (end ? left == 0 : from.pos == from.size) {
        return OkStatus();
      }
    }
    return Fail(ErrorCode::kIo, "zstd cannot pack");
  }

 private:
  ZSTD_CStream* stream_;
};

template <typename Packer>
class Packed final : public ByteSink {
 public:
  explicit Packed(std::unique_ptr<ByteSink> below) : below_(std::move(below)) {}
  Status Write(std::span<const char> bytes) override { return Run(bytes, false); }
  Status Close() override {
    EPLOG_TRY(Run({}, true));
    return below_->Close();
  }

 private:
  Status Run(std::span<const char> bytes, bool end) {
    return packer_.Run(bytes, end, room_, [this](std::span<char> out) {
      return out.empty() ? OkStatus() : below_->Write(out);
    });
  }

  std::unique_ptr<ByteSink> below_;
  Packer packer_;
  std::vector<char> room_ = std::vector<char>(kSinkBufferBytes);
};

}  // namespace

Result<std::unique_ptr<ByteSink>> OpenByteSink(const std::string& path, bool replace) {
  if (path == "-") {
    return std::make_unique<FileSink>(STDOUT_FILENO, "standard output", "");
  }
  struct stat info {};
  const bool there = ::stat(path.c_str(), &info) == 0;
  const bool plain = !there || S_ISREG(info.st_mode);
  if (there && plain && !replace) {
    return Fail(ErrorCode::kExists,
                fmt::format("{} exists already: name another file, or say --force", path));
  }
  const std::string part = plain ? path + ".part" : "";
  const int fd = ::open(plain ? part.c_str() : path.c_str(),
                        O_WRONLY | O_CLOEXEC | (plain ? O_CREAT | O_TRUNC : 0), 0666);
  if (fd < 0) {
    return FailErrno(errno, fmt::format("{} cannot be made", path));
  }
  std::unique_ptr<ByteSink> sink = std::make_unique<FileSink>(fd, path, part);
  const std::string_view name(path);
  if (name.ends_with(".gz")) {
    sink = std::make_unique<Packed<Gzip>>(std::move(sink));
  } else if (name.ends_with(".xz")) {
    sink = std::make_unique<Packed<Xz>>(std::move(sink));
  } else if (name.ends_with(".zst")) {
    sink = std::make_unique<Packed<Zstd>>(std::move(sink));
  }
  return sink;
}

}  // namespace eplog
