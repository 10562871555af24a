// What a small durable update costs below any RAID: 4 KiB to each of N files that were written
// before, all durable before the next update begins. For `bench/peers`.
//
//   raw_durable FILE... [--seconds S] [--way dsync|flush|linked]
//
// Says on one line how many updates a second that was. Each update goes to another random block of
// each file, by O_DIRECT.
#include <fcntl.h>
#include <fmt/format.h>
#include <liburing.h>
#include <sys/stat.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

constexpr unsigned kBlock = 4096;

enum class Way : uint8_t {
  kDsync,   // writes that are durable when they end, all at once
  kFlush,   // all writes, then all flushes
  kLinked,  // each file's write, and its flush behind it
};

struct Target {
  int fd = -1;
  uint64_t blocks = 0;
};

std::vector<Target> OpenAll(const std::vector<std::string>& paths) {
  std::vector<Target> targets;
  for (const std::string& path : paths) {
    struct stat info {};
    const int fd = ::open(path.c_str(), O_RDWR | O_DIRECT | O_CLOEXEC);
    if (fd < 0 || ::fstat(fd, &info) != 0 || info.st_size < off_t{kBlock}) {
      throw std::runtime_error(path + " cannot be opened, or has no block");
    }
    targets.push_back({fd, static_cast<uint64_t>(info.st_size) / kBlock});
  }
  return targets;
}

class Updates {
 public:
  Updates(std::vector<Target> targets, Way way) : targets_(std::move(targets)), way_(way) {
    if (io_uring_queue_init(static_cast<unsigned>(2 * targets_.size()), &ring_, 0) != 0 ||
        ::posix_memalign(&block_, kBlock, kBlock) != 0) {
      throw std::runtime_error("there is no io_uring, or no memory");
    }
  }
  Updates(const Updates&) = delete;
  Updates& operator=(const Updates&) = delete;
  ~Updates() {
    io_uring_queue_exit(&ring_);
    std::free(block_);
    for (const Target& target : targets_) {
      ::close(target.fd);
    }
  }

  void One() {
    for (const Target& target : targets_) {
      io_uring_sqe* write = io_uring_get_sqe(&ring_);
      io_uring_prep_write(write, target.fd, block_, kBlock, random_() % target.blocks * kBlock);
      write->rw_flags = way_ == Way::kDsync ? RWF_DSYNC : 0;
      if (way_ == Way::kLinked) {
        io_uring_sqe_set_flags(write, IOSQE_IO_LINK);
        Flush(target);
      }
    }
    Await(way_ == Way::kLinked ? 2 * targets_.size() : targets_.size());
    if (way_ == Way::kFlush) {
      for (const Target& target : targets_) {
        Flush(target);
      }
      Await(targets_.size());
    }
  }

 private:
  void Flush(const Target& target) {
    io_uring_prep_fsync(io_uring_get_sqe(&ring_), target.fd, IORING_FSYNC_DATASYNC);
  }
  void Await(size_t count) {
    io_uring_submit_and_wait(&ring_, static_cast<unsigned>(count));
    for (size_t i = 0; i < count; ++i) {
      io_uring_cqe* done = nullptr;
      if (io_uring_wait_cqe(&ring_, &done) != 0 || done->res < 0) {
        throw std::runtime_error("a request failed");
      }
      io_uring_cqe_seen(&ring_, done);
    }
  }

  std::vector<Target> targets_;
  Way way_;
  io_uring ring_{};
  void* block_ = nullptr;
  std::mt19937_64 random_;
};

}  // namespace

int main(int count, char** arguments) {
  std::vector<std::string> paths;
  double seconds = 10;
  Way way = Way::kDsync;
  CLI::App app("4 KiB to each of some files, all durable, again and again");
  app.add_option("FILE", paths, "files that were written before")->required();
  app.add_option("--seconds", seconds, "how long");
  app.add_option("--way", way, "how they become durable")
      ->transform(CLI::CheckedTransformer(std::map<std::string, Way>{
          {"dsync", Way::kDsync}, {"flush", Way::kFlush}, {"linked", Way::kLinked}}));
  CLI11_PARSE(app, count, arguments);
  try {
    Updates updates(OpenAll(paths), way);
    using Clock = std::chrono::steady_clock;
    const auto begin = Clock::now();
    const auto end = begin + std::chrono::duration<double>(seconds);
    uint64_t done = 0;
    for (; Clock::now() < end; ++done) {
      updates.One();
    }
    const std::chrono::duration<double> took = Clock::now() - begin;
    fmt::print("{:.1f}\n", static_cast<double>(done) / took.count());
  } catch (const std::exception& error) {
    fmt::print(stderr, "raw_durable: {}\n", error.what());
    return 1;
  }
  return 0;
}
