#include "host/array_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <toml++/toml.h>
#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <fstream>
#include <sstream>
#include <tuple>

#include "base/file_descriptor.h"
#include "base/utf8.h"
#include "eplog/types.h"
#include "text/words.h"

namespace eplog {
namespace {

constexpr size_t kMaxFileBytes = size_t{1} << 20;

// Collects the first complaint; everything after it is skipped.
class Reader {
 public:
  explicit Reader(const std::filesystem::path& file) : file_(file) {}

  tl::unexpected<Error> Complain(const toml::node& where, const std::string& what) const {
    return Complain(where.source(), what);
  }
  tl::unexpected<Error> Complain(const toml::source_region& where, const std::string& what) const {
    const auto line = where.begin.line;
    const std::string place =
        line == 0 ? file_.string() : fmt::format("{}:{}", file_.string(), line);
    return Fail(ErrorCode::kCorrupt, fmt::format("{}: {}", place, OneLine(what)));
  }

  // Every key of `table` must be one of `known`.
  template <size_t kCount>
  Status Keys(const toml::table& table, const std::array<std::string_view, kCount>& known) const {
    for (const auto& [key, value] : table) {
      if (std::find(known.begin(), known.end(), key.str()) == known.end()) {
        return Complain(key.source(), fmt::format("unknown key '{}'; known here: {}", key.str(),
                                                  fmt::join(known, ", ")));
      }
    }
    return OkStatus();
  }

  Result<std::string> Text(const toml::table& table, std::string_view key) const {
    const toml::node* node = table.get(key);
    if (node == nullptr) {
      return Complain(table, fmt::format("'{}' is missing", key));
    }
    const auto* text = node->as_string();
    if (text == nullptr) {
      return Complain(*node, fmt::format("'{}' must be a string in quotes", key));
    }
    if (text->get().empty() || text->get().find('\0') != std::string::npos) {
      return Complain(*node, fmt::format("'{}' is empty or has a NUL in it", key));
    }
    return text->get();
  }

 private:
  const std::filesystem::path& file_;
};

bool IsUuid(std::string_view text) {
  if (text.size() != 36) {
    return false;
  }
  for (size_t i = 0; i < text.size(); ++i) {
    const bool dash = i == 8 || i == 13 || i == 18 || i == 23;
    if (dash ? text[i] != '-' : std::isxdigit(static_cast<unsigned char>(text[i])) == 0) {
      return false;
    }
  }
  return true;
}

Status ReadMember(const Reader& reader, const toml::node& node, ArrayFile& array) {
  constexpr std::array<std::string_view, 2> kKeys = {"name", "path"};
  const toml::table* table = node.as_table();
  if (table == nullptr) {
    return reader.Complain(node, "'member' must be a table: [[member]]");
  }
  EPLOG_TRY(reader.Keys(*table, kKeys));
  auto name = reader.Text(*table, "name");
  if (!name.ok()) {
    return Fail(std::move(name).error());
  }
  auto path = reader.Text(*table, "path");
  if (!path.ok()) {
    return Fail(std::move(path).error());
  }
  if (!IsMemberName(*name)) {
    return reader.Complain(
        *table->get("name"),
        fmt::format("'{}' is no member name; write ssd0, ssd1, ... log0, ...", *name));
  }
  MemberPath member{std::move(*name), std::move(*path)};
  for (const MemberPath& other : array.members) {
    if (other.name == member.name) {
      return reader.Complain(*table->get("name"),
                             fmt::format("member '{}' is listed twice", member.name));
    }
    if (array.Locate(other) == array.Locate(member)) {
      return reader.Complain(
          *table->get("path"),
          fmt::format("'{}' is the path of {} and of {}", member.path, other.name, member.name));
    }
  }
  array.members.push_back(std::move(member));
  return OkStatus();
}

// After the members.
Status ReadSpare(const Reader& reader, const toml::node& node, ArrayFile& array) {
  constexpr std::array<std::string_view, 1> kKeys = {"path"};
  const toml::table* table = node.as_table();
  if (table == nullptr) {
    return reader.Complain(node, "'spare' must be a table: [[spare]]");
  }
  EPLOG_TRY(reader.Keys(*table, kKeys));
  auto path = reader.Text(*table, "path");
  if (!path.ok()) {
    return Fail(std::move(path).error());
  }
  const std::filesystem::path at = array.LocatePath(*path);
  for (const MemberPath& member : array.members) {
    if (array.Locate(member) == at) {
      return reader.Complain(
          *table->get("path"),
          fmt::format("'{}' is the path of {} and of a spare", *path, member.name));
    }
  }
  if (array.ListsSpare(at)) {
    return reader.Complain(*table->get("path"), fmt::format("spare '{}' is listed twice", *path));
  }
  array.spares.push_back(std::move(*path));
  return OkStatus();
}

Status ReadSpares(const Reader& reader, const toml::table& root, ArrayFile& array) {
  const toml::node* spares = root.get("spare");
  if (spares == nullptr) {
    return OkStatus();
  }
  if (!spares->is_array()) {
    return reader.Complain(*spares, "'spare' must be a table: [[spare]]");
  }
  for (const toml::node& spare : *spares->as_array()) {
    EPLOG_TRY(ReadSpare(reader, spare, array));
  }
  return OkStatus();
}

Result<ArrayFile> ReadArray(const toml::table& root, const std::filesystem::path& file) {
  constexpr std::array<std::string_view, 4> kKeys = {"uuid", "name", "member", "spare"};
  const Reader reader(file);
  ArrayFile array;
  array.file = file;
  EPLOG_TRY(reader.Keys(root, kKeys));
  auto uuid = reader.Text(root, "uuid");
  if (!uuid.ok()) {
    return Fail(std::move(uuid).error());
  }
  if (!IsUuid(*uuid)) {
    return reader.Complain(*root.get("uuid"), fmt::format("'{}' is not a UUID", *uuid));
  }
  array.uuid = std::move(*uuid);
  auto name = reader.Text(root, "name");
  if (!name.ok()) {
    return Fail(std::move(name).error());
  }
  if (name->size() > kMaxArrayNameBytes) {
    return reader.Complain(*root.get("name"),
                           fmt::format("'name' is longer than {} bytes", kMaxArrayNameBytes));
  }
  array.name = std::move(*name);
  const toml::node* members = root.get("member");
  if (members == nullptr || !members->is_array() || members->as_array()->empty()) {
    return reader.Complain(members == nullptr ? static_cast<const toml::node&>(root) : *members,
                           "no members; each needs a [[member]] with name and path");
  }
  for (const toml::node& member : *members->as_array()) {
    EPLOG_TRY(ReadMember(reader, member, array));
  }
  EPLOG_TRY(ReadSpares(reader, root, array));
  return array;
}

// A TOML basic string.
std::string Quote(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (byte < 0x20 || byte == 0x7F) {
      out += fmt::format("\\u{:04X}", static_cast<unsigned>(byte));
    } else {
      out += c;
    }
  }
  return out + '"';
}

Status WriteAll(int fd, std::string_view text, const std::string& path) {
  while (!text.empty()) {
    const ssize_t wrote = ::write(fd, text.data(), text.size());
    if (wrote < 0 && errno != EINTR) {
      return FailErrno(errno, "cannot write " + path);
    }
    if (wrote > 0) {
      text.remove_prefix(static_cast<size_t>(wrote));
    }
  }
  return OkStatus();
}

Status SyncDirectory(const std::filesystem::path& directory) {
  const FileDescriptor fd(::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (fd.get() < 0 || ::fsync(fd.get()) != 0) {
    return FailErrno(errno, "cannot sync the directory " + directory.string());
  }
  return OkStatus();
}

Status WriteTemporary(const std::string& path, std::string_view text) {
  const FileDescriptor fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
  if (fd.get() < 0) {
    return FailErrno(errno, "cannot create " + path);
  }
  EPLOG_TRY(WriteAll(fd.get(), text, path));
  if (::fsync(fd.get()) != 0) {
    return FailErrno(errno, "cannot sync " + path);
  }
  return OkStatus();
}

// Who says what stood in a file that is gone may know of a member that was a spare then.
ArrayFile WithoutMembersAsSpares(ArrayFile array) {
  for (const MemberPath& member : array.members) {
    array.DropSpare(array.Locate(member));
  }
  return array;
}

// What cannot be looked at stays as it is, and whoever opens it is told why. The library makes it
// empty, and an empty directory is the working directory.
std::filesystem::path Canonical(const std::filesystem::path& path) {
  std::error_code error;
  std::filesystem::path canonical = std::filesystem::weakly_canonical(path, error);
  return error ? path : canonical;
}

// Where it lies: the name may be a symbolic link, which stays one.
std::filesystem::path Target(const std::filesystem::path& file) {
  constexpr int kMostLinks = 40;  // as in the kernel
  std::error_code ignored;
  std::filesystem::path at = file;
  for (int i = 0; i < kMostLinks && std::filesystem::is_symlink(at, ignored); ++i) {
    at = at.parent_path() / std::filesystem::read_symlink(at, ignored);
  }
  return ResolveParent(at);
}

// A ".." stands behind a name.
bool GoesBack(const std::filesystem::path& path) {
  bool named = false;
  for (const std::filesystem::path& part : path.relative_path()) {
    if (part == ".." && named) {
      return true;
    }
    named = named || (part != ".." && part != "." && !part.empty());
  }
  return false;
}

std::string TemporaryOf(const std::filesystem::path& target) {
  return fmt::format("{}.{}.tmp", target.string(), ::getpid());
}

}  // namespace

// Nothing is looked at: what is asked about may hang, and the loop of a serving process asks, too.
// No link leads to the file's directory, so that a ".." that goes up from there is taken off in
// writing. One behind a name stays, since the name may be a link: the kernel follows it then, and
// whoever compares such a path with another takes them for two, and goes by what is there.
std::filesystem::path ArrayFile::LocatePath(const std::string& path) const {
  const std::filesystem::path whole = file.parent_path() / path;
  return GoesBack(path) ? whole : whole.lexically_normal();
}

bool ArrayFile::ListsSpare(const std::filesystem::path& path) const {
  return std::any_of(spares.begin(), spares.end(),
                     [&](const std::string& spare) { return LocatePath(spare) == path; });
}

void ArrayFile::AddSpare(const std::filesystem::path& path) {
  if (!ListsSpare(path)) {
    spares.push_back(PathFor(*this, path));
  }
}

void ArrayFile::DropSpare(const std::filesystem::path& path) {
  std::erase_if(spares, [&](const std::string& spare) { return LocatePath(spare) == path; });
}

std::string ArrayFile::MemberAt(const std::filesystem::path& path) const {
  const auto member = std::find_if(members.begin(), members.end(),
                                   [&](const MemberPath& other) { return Locate(other) == path; });
  return member == members.end() ? std::string() : member->name;
}

void ArrayFile::MoveMember(const std::string& member_name, const std::filesystem::path& path) {
  DropSpare(path);
  std::erase_if(members, [&](const MemberPath& other) {
    return other.name != member_name && Locate(other) == path;
  });
  const auto member = std::find_if(members.begin(), members.end(), [&](const MemberPath& other) {
    return other.name == member_name;
  });
  if (member == members.end()) {
    members.push_back({member_name, PathFor(*this, path)});
  } else if (Locate(*member) != path) {  // else it stays as its owner wrote it
    member->path = PathFor(*this, path);
  }
}

bool IsMemberName(std::string_view name) {
  if (!name.starts_with("ssd") && !name.starts_with("log")) {
    return false;
  }
  const std::string_view number = name.substr(3);
  const auto digit = [](char c) { return c >= '0' && c <= '9'; };
  return !number.empty() && number.size() <= 2 &&
         std::all_of(number.begin(), number.end(), digit) &&
         (number.size() == 1 || number.front() != '0');
}

bool MemberBefore(std::string_view a, std::string_view b) {
  const auto key = [](std::string_view name) {
    return std::tuple(name.starts_with("log"), name.size(), name);
  };
  return key(a) < key(b);
}

bool ArrayFile::PlaceMembers(const std::vector<MemberPath>& found) {
  const ArrayFile before = *this;
  const auto by_name = [](const std::string& wanted) {
    return [&wanted](const MemberPath& member) { return member.name == wanted; };
  };
  std::vector<std::filesystem::path> left;  // by those that were found elsewhere
  for (const MemberPath& old : before.members) {
    const auto now = std::find_if(found.begin(), found.end(), by_name(old.name));
    const auto taker = std::find_if(found.begin(), found.end(), [&](const MemberPath& other) {
      return before.Locate(old) == other.path;
    });
    if (now != found.end() && taker == found.end()) {
      left.push_back(before.Locate(old));
    }
  }
  for (const MemberPath& member : found) {
    MoveMember(member.name, member.path);
  }
  for (const MemberPath& old : before.members) {
    const bool gone = std::none_of(members.begin(), members.end(), by_name(old.name));
    if (gone && !left.empty()) {
      MoveMember(old.name, left.front());
      left.erase(left.begin());
    }
  }
  const auto line = [&](const MemberPath& member) {
    return std::find_if(before.members.begin(), before.members.end(), by_name(member.name));
  };
  std::stable_sort(members.begin(), members.end(),
                   [&](const MemberPath& a, const MemberPath& b) { return line(a) < line(b); });
  return members != before.members || spares != before.spares;
}

std::filesystem::path ArrayFile::Argument() const {
  return file.filename() == kArrayFileName ? file.parent_path() : file;
}

std::filesystem::path ArrayFilePath(const std::filesystem::path& argument) {
  std::error_code ignored;
  std::filesystem::path path = std::filesystem::absolute(argument, ignored);
  if (!path.has_filename()) {
    path = path.parent_path();  // a trailing slash
  }
  const bool directory = std::filesystem::is_directory(path, ignored);
  if (!directory &&
      (path.extension() == ".toml" || std::filesystem::is_regular_file(path, ignored))) {
    return ResolveParent(path);
  }
  return Canonical(path) / kArrayFileName;
}

std::filesystem::path ResolveParent(const std::filesystem::path& path) {
  std::error_code ignored;
  const std::filesystem::path whole = std::filesystem::absolute(path, ignored);
  if (whole.filename().empty() || whole.filename() == "." || whole.filename() == "..") {
    return Canonical(whole);
  }
  return Canonical(whole.parent_path()) / whole.filename();
}

Result<ArrayFile> ParseArrayFile(std::string_view text, const std::filesystem::path& file) {
  // toml++ reports syntax errors by exception; none leaves this function.
  try {
    const toml::table root = toml::parse(text, file.string());
    return ReadArray(root, file);
  } catch (const toml::parse_error& error) {
    return Fail(ErrorCode::kCorrupt,
                fmt::format("{}:{}: {}", file.string(), error.source().begin.line,
                            OneLine(std::string(error.description()))));
  }
}

Result<ArrayFile> LoadArrayFile(const std::filesystem::path& argument) {
  const std::filesystem::path file = ArrayFilePath(argument);
  std::error_code error;
  const auto type = std::filesystem::status(file, error).type();
  if (type == std::filesystem::file_type::not_found) {
    return Fail(ErrorCode::kNotFound,
                fmt::format("no array at {}: there is no {}; 'eplog create' makes one",
                            argument.string(), file.string()));
  }
  if (error) {
    return FailErrno(error.value(), "cannot look at " + file.string());
  }
  if (type != std::filesystem::file_type::regular) {
    return Fail(
        ErrorCode::kNotFound,
        fmt::format("{} is neither an array's directory nor its array.toml", argument.string()));
  }
  const auto size = std::filesystem::file_size(file, error);
  if (!error && size > kMaxFileBytes) {
    return Fail(ErrorCode::kCorrupt,
                fmt::format("{} is too large for an array.toml", file.string()));
  }
  errno = 0;
  std::ifstream in(file, std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  if (!in) {
    return FailErrno(errno == 0 ? EIO : errno, "cannot read " + file.string());
  }
  return ParseArrayFile(text.str(), file);
}

std::string PathFor(const ArrayFile& array, const std::filesystem::path& path) {
  const std::filesystem::path relative = path.lexically_relative(array.file.parent_path());
  const bool inside = !relative.empty() && *relative.begin() != "..";
  return inside ? relative.string() : path.string();
}

std::string FormatArrayFile(const ArrayFile& array) {
  std::string out =
      "# Where the members of this array are. The truth about the array is in its superblocks.\n";
  out += fmt::format("uuid = {}\nname = {}\n", Quote(array.uuid), Quote(array.name));
  for (const MemberPath& member : array.members) {
    out +=
        fmt::format("\n[[member]]\nname = {}\npath = {}\n", Quote(member.name), Quote(member.path));
  }
  for (const std::string& spare : array.spares) {
    out += fmt::format("\n[[spare]]\npath = {}\n", Quote(spare));
  }
  return out;
}

// What could not be read again would lock everybody out.
Status CheckReadable(const ArrayFile& array) {
  std::vector<std::string> paths = array.spares;
  for (const MemberPath& member : array.members) {
    paths.push_back(member.path);
  }
  for (const std::string& path : paths) {
    if (!IsUtf8(path)) {
      return Fail(ErrorCode::kInvalidArgument,
                  fmt::format("{} is not UTF-8, and array.toml can name no such path: give a link "
                              "to it",
                              path));
    }
  }
  const auto readable = ParseArrayFile(FormatArrayFile(array), array.file);
  return readable.ok()
             ? OkStatus()
             : Status(Fail(ErrorCode::kInvalidArgument,
                           "array.toml is left as it is: it would be " + readable.error().message));
}

Status CheckWritable(const ArrayFile& array) {
  EPLOG_TRY(CheckReadable(array));
  const std::string temporary = TemporaryOf(Target(array.file));
  Status written = WriteTemporary(temporary, FormatArrayFile(array));
  ::unlink(temporary.c_str());
  return written;
}

Status WriteArrayFile(const ArrayFile& array) {
  const std::filesystem::path target = Target(array.file);
  const std::string temporary = TemporaryOf(target);
  Status written = WriteTemporary(temporary, FormatArrayFile(array));
  if (written.ok() && ::rename(temporary.c_str(), target.c_str()) != 0) {
    written = FailErrno(errno, "cannot rename to " + target.string());
  }
  if (!written.ok()) {
    ::unlink(temporary.c_str());
    return written;
  }
  return SyncDirectory(target.parent_path());
}

Status ChangeArrayFile(ArrayFile& array, const std::function<void(ArrayFile&)>& change) {
  // The directory is locked, since the file itself is replaced: where it lies, by whatever name.
  const std::filesystem::path directory = Target(array.file).parent_path();
  const FileDescriptor lock(::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (lock.get() < 0) {
    return FailErrno(errno, "cannot open the directory " + directory.string());
  }
  while (::flock(lock.get(), LOCK_EX) != 0) {
    if (errno != EINTR) {
      return FailErrno(errno, "cannot lock the directory " + directory.string());
    }
  }
  auto now = LoadArrayFile(array.file);
  const bool gone = !now.ok() && now.error().code == ErrorCode::kNotFound;
  if (gone) {
    now = WithoutMembersAsSpares(array);
  }
  EPLOG_TRY(now);
  if (now->uuid != array.uuid) {
    return Fail(ErrorCode::kBusy,
                fmt::format("{} is another array's by now ('{}', {}), and is left as it is",
                            array.file.string(), now->name, now->uuid));
  }
  const std::string before = FormatArrayFile(*now);
  change(*now);
  if (!gone && FormatArrayFile(*now) == before) {
    array = std::move(*now);  // whatever its owner wrote besides stays
    return OkStatus();
  }
  EPLOG_TRY(CheckReadable(*now));
  EPLOG_TRY(WriteArrayFile(*now));
  array = std::move(*now);
  return OkStatus();
}

bool IsAnothersByNow(const ArrayFile& array) {
  const auto now = LoadArrayFile(array.file);
  return now.ok() && now->uuid != array.uuid;
}

}  // namespace eplog
