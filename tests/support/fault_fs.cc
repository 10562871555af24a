// A file system for tests, whose files are as bad as disks can be.
//
//   fault_fs BACKING MOUNT [--uncached]
//
// Serves the files of the folder BACKING, in the foreground; whoever looks for one asks each time
// where nothing is cached.
//
// What is written can be read at once, and is durable by fsync alone. What is written to
// MOUNT/.control is a command, and what is read there says what happened so far.
//
//   cut SEED                      power goes: of what no fsync has covered, each file keeps its own
//                                 part, in any order, torn at 512 B
//   fault FILE KIND WHAT COUNT    the next COUNT requests of this KIND (read, write, fsync) to FILE
//                                 ('*': each) fail with WHAT (EIO, ENOSPC, EINTR, EAGAIN); or do
//                                 half of what they should (short)
//   well                          no more faults
//   stop FILE                     who next looks for FILE finds nobody who answers: this process
//                                 stops itself, until SIGCONT
//
// Requests are answered one after the other: who waits for one waits for all.
#define FUSE_USE_VERSION 35
#include <fcntl.h>
#include <fuse.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <map>
#include <memory>
#include <random>
#include <sstream>
#include <string>
#include <vector>

namespace {

constexpr uint64_t kSector = 512;
constexpr const char* kControl = "/.control";

enum class Kind : uint8_t { kRead, kWrite, kFsync };

struct Fault {
  Kind kind = Kind::kRead;
  int error = 0;  // 0: half of it
  uint64_t left = 0;
};

class Disk {
 public:
  explicit Disk(const std::string& path) : fd_(open(path.c_str(), O_RDWR | O_CLOEXEC)) {}
  Disk(const Disk&) = delete;
  Disk& operator=(const Disk&) = delete;
  ~Disk() {
    if (fd_ >= 0) {
      close(fd_);
    }
  }
  [[nodiscard]] bool ok() const { return fd_ >= 0; }

  void Add(const Fault& fault) { faults_.push_back(fault); }
  void Cure() { faults_.clear(); }
  [[nodiscard]] uint64_t met() const { return met_; }
  [[nodiscard]] uint64_t lost() const { return lost_; }

  int Read(char* into, size_t size, off_t offset) {
    if (const int error = Meet(Kind::kRead, size); error != 0) {
      return error;
    }
    const ssize_t got = pread(fd_, into, size, offset);
    return got < 0 ? -errno : static_cast<int>(got);
  }

  int Write(const char* from, size_t size, off_t offset) {
    if (const int error = Meet(Kind::kWrite, size); error != 0) {
      return error;
    }
    Remember(static_cast<uint64_t>(offset), size);
    if (pwrite(fd_, from, size, offset) != static_cast<ssize_t>(size)) {
      return -errno;
    }
    writes_.push_back({static_cast<uint64_t>(offset), std::vector<char>(from, from + size)});
    return static_cast<int>(size);
  }

  int Fsync() {
    size_t size = 0;
    if (const int error = Meet(Kind::kFsync, size); error != 0) {
      return error;
    }
    writes_.clear();
    durable_.clear();
    return 0;
  }

  void Cut(std::mt19937_64& random) {
    std::map<uint64_t, Sector> seen;
    for (const auto& [at, was] : durable_) {
      seen[at] = Load(at);
      Store(at, was);
    }
    // Often all writes of one age fare alike: that shows a broken order soonest.
    const uint64_t fate = random() % 5;
    const uint64_t middle = writes_.empty() ? 0 : random() % writes_.size();
    for (uint64_t i = 0; i < writes_.size(); ++i) {
      const bool one = random() % 2 == 0;
      const bool kept = fate == 0 ? false : fate == 1 ? i < middle : fate == 2 ? i >= middle : one;
      Apply(writes_[i], kept, fate == 4, random);
    }
    for (const auto& [at, was] : seen) {
      lost_ += Load(at) == was ? 0 : 1;
    }
    writes_.clear();
    durable_.clear();
  }

 private:
  using Sector = std::array<char, kSector>;
  struct Written {
    uint64_t offset = 0;
    std::vector<char> bytes;
  };

  // An error to answer with, or 0; `size` is what is to be done.
  int Meet(Kind kind, size_t& size) {
    for (Fault& fault : faults_) {
      const bool fits = fault.kind == kind && fault.left > 0;
      if (!fits || (fault.error == 0 && size < 2 * kSector)) {
        continue;
      }
      --fault.left;
      ++met_;
      if (fault.error != 0) {
        return -fault.error;
      }
      size = std::max<size_t>(size / 2 / kSector, 1) * kSector;
    }
    return 0;
  }

  Sector Load(uint64_t at) const {
    Sector sector{};
    if (pread(fd_, sector.data(), kSector, static_cast<off_t>(at * kSector)) < 0) {
      std::perror("fault_fs: read");
    }
    return sector;
  }

  void Store(uint64_t at, const Sector& sector) const {
    if (pwrite(fd_, sector.data(), kSector, static_cast<off_t>(at * kSector)) !=
        static_cast<ssize_t>(kSector)) {
      std::perror("fault_fs: write");
    }
  }

  // What is durable of what is about to be overwritten.
  void Remember(uint64_t offset, size_t size) {
    for (uint64_t at = offset / kSector; at * kSector < offset + size; ++at) {
      if (!durable_.contains(at)) {
        durable_[at] = Load(at);
      }
    }
  }

  void Apply(const Written& write, bool kept, bool torn, std::mt19937_64& random) const {
    for (uint64_t done = 0; done < write.bytes.size();) {
      const uint64_t at = write.offset + done;
      const uint64_t length = std::min(kSector - at % kSector, write.bytes.size() - done);
      if (torn ? random() % 2 == 0 : kept) {
        Sector sector = Load(at / kSector);
        std::memcpy(sector.data() + at % kSector, write.bytes.data() + done, length);
        Store(at / kSector, sector);
      }
      done += length;
    }
  }

  int fd_;
  std::map<uint64_t, Sector> durable_;  // of what was written since the last fsync
  std::vector<Written> writes_;         // since then
  std::vector<Fault> faults_;
  uint64_t met_ = 0;
  uint64_t lost_ = 0;  // sectors, in cuts
};

class Disks {
 public:
  explicit Disks(std::string backing) : backing_(std::move(backing)) {}

  [[nodiscard]] std::string Path(const char* name) const { return backing_ + name; }

  Disk* Find(const char* name) {
    std::unique_ptr<Disk>& disk = disks_[name];
    if (disk == nullptr || !disk->ok()) {
      disk = std::make_unique<Disk>(Path(name));
    }
    return disk->ok() ? disk.get() : nullptr;
  }

  // 0, or an error.
  int Command(const std::string& text) {
    std::istringstream words(text);
    std::string verb;
    words >> verb;
    if (verb == "cut") {
      return Cut(words);
    }
    if (verb == "well") {
      for (const auto& [name, disk] : disks_) {
        disk->Cure();
      }
      return 0;
    }
    if (verb == "stop") {
      words >> stop_at_;
      return stop_at_.empty() ? -EINVAL : 0;
    }
    return verb == "fault" ? AddFault(words) : -EINVAL;
  }

  void LookedFor(const char* name) {
    if (!stop_at_.empty() && name == "/" + stop_at_) {
      stop_at_.clear();
      raise(SIGSTOP);
    }
  }

  [[nodiscard]] std::string Report() const {
    std::string text = "cuts " + std::to_string(cuts_) + "\n";
    for (const auto& [name, disk] : disks_) {
      text += name.substr(1) + " faults " + std::to_string(disk->met()) + " sectors_lost " +
              std::to_string(disk->lost()) + "\n";
    }
    return text;
  }

 private:
  int Cut(std::istringstream& words) {
    uint64_t seed = 0;
    if (!(words >> seed)) {
      return -EINVAL;
    }
    ++cuts_;
    std::mt19937_64 random(seed);
    for (const auto& [name, disk] : disks_) {
      disk->Cut(random);
    }
    return 0;
  }

  int AddFault(std::istringstream& words) {
    std::string name;
    std::string kind;
    std::string what;
    Fault fault;
    if (!(words >> name >> kind >> what >> fault.left)) {
      return -EINVAL;
    }
    static const std::map<std::string, Kind> kKinds = {
        {"read", Kind::kRead}, {"write", Kind::kWrite}, {"fsync", Kind::kFsync}};
    static const std::map<std::string, int> kErrors = {
        {"short", 0}, {"EIO", EIO}, {"ENOSPC", ENOSPC}, {"EINTR", EINTR}, {"EAGAIN", EAGAIN}};
    if (!kKinds.contains(kind) || !kErrors.contains(what)) {
      return -EINVAL;
    }
    fault.kind = kKinds.at(kind);
    fault.error = kErrors.at(what);
    bool any = false;
    for (const auto& [known, disk] : disks_) {
      if (name == "*" || known == "/" + name) {
        disk->Add(fault);
        any = true;
      }
    }
    return any ? 0 : -ENOENT;
  }

  std::string backing_;
  std::map<std::string, std::unique_ptr<Disk>> disks_;
  uint64_t cuts_ = 0;
  std::string stop_at_;
};

Disks& All() {
  return *static_cast<Disks*>(fuse_get_context()->private_data);
}

bool IsControl(const char* name) {
  return std::strcmp(name, kControl) == 0;
}

int OrError(int result) {
  return result < 0 ? -errno : result;
}

int GetAttributes(const char* name, struct stat* into, fuse_file_info* /*file*/) {
  if (IsControl(name)) {
    *into = {};
    into->st_mode = S_IFREG | 0600;
    into->st_nlink = 1;
    return 0;
  }
  All().LookedFor(name);
  return OrError(stat(All().Path(name).c_str(), into));
}

void* BeginUncached(fuse_conn_info* /*connection*/, fuse_config* config) {
  config->entry_timeout = 0;
  config->attr_timeout = 0;
  return fuse_get_context()->private_data;
}

int ReadFolder(const char* /*name*/, void* into, fuse_fill_dir_t fill, off_t /*offset*/,
               fuse_file_info* /*file*/, fuse_readdir_flags /*flags*/) {
  for (const auto& entry : std::filesystem::directory_iterator(All().Path("/"))) {
    fill(into, entry.path().filename().c_str(), nullptr, 0, fuse_fill_dir_flags{});
  }
  return 0;
}

int Open(const char* name, fuse_file_info* file) {
  file->direct_io = 1;  // every request comes here, and short answers reach who asked
  return IsControl(name) || All().Find(name) != nullptr ? 0 : -ENOENT;
}

int ReadFile(const char* name, char* into, size_t size, off_t offset, fuse_file_info* /*file*/) {
  if (IsControl(name)) {
    const std::string text = All().Report();
    const auto from = std::min<size_t>(static_cast<size_t>(offset), text.size());
    return static_cast<int>(text.copy(into, size, from));
  }
  Disk* disk = All().Find(name);
  return disk == nullptr ? -ENOENT : disk->Read(into, size, offset);
}

int WriteFile(const char* name, const char* from, size_t size, off_t offset,
              fuse_file_info* /*file*/) {
  if (IsControl(name)) {
    const int error = All().Command(std::string(from, size));
    return error != 0 ? error : static_cast<int>(size);
  }
  Disk* disk = All().Find(name);
  return disk == nullptr ? -ENOENT : disk->Write(from, size, offset);
}

int Sync(const char* name, int /*data_only*/, fuse_file_info* /*file*/) {
  Disk* disk = IsControl(name) ? nullptr : All().Find(name);
  return disk == nullptr ? 0 : disk->Fsync();
}

int Truncate(const char* name, off_t size, fuse_file_info* /*file*/) {
  return IsControl(name) ? 0 : OrError(truncate(All().Path(name).c_str(), size));
}

int StatFs(const char* name, struct statvfs* into) {
  return OrError(statvfs(All().Path(name).c_str(), into));
}

}  // namespace

int main(int argc, char** argv) {
  const bool uncached = argc == 4 && std::strcmp(argv[3], "--uncached") == 0;
  if (argc != 3 && !uncached) {
    std::fprintf(stderr, "fault_fs BACKING MOUNT [--uncached]\n");
    return 2;
  }
  Disks disks(argv[1]);
  fuse_operations operations{};
  operations.init = uncached ? BeginUncached : nullptr;
  operations.getattr = GetAttributes;
  operations.readdir = ReadFolder;
  operations.open = Open;
  operations.read = ReadFile;
  operations.write = WriteFile;
  operations.fsync = Sync;
  operations.truncate = Truncate;
  operations.statfs = StatFs;
  char name[] = "fault_fs";
  char foreground[] = "-f";
  char alone[] = "-s";
  std::array<char*, 4> arguments = {name, foreground, alone, argv[2]};
  return fuse_main(static_cast<int>(arguments.size()), arguments.data(), &operations, &disks);
}
