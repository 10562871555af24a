// array.toml: where to look for an array's members. The truth is in the superblocks; this file only
// says where.
//
//   uuid = "3f0c...-..."
//   name = "array"
//   [[member]]
//   name = "ssd0"          # ssd0 ..., log0 ...
//   path = "ssd0"          # relative to the file's directory, or absolute
//   [[spare]]
//   path = "/dev/sdx"      # may step in for a member
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "eplog/result.h"

namespace eplog {

inline constexpr char kArrayFileName[] = "array.toml";

struct MemberPath {
  std::string name;
  std::string path;  // as written in the file
  bool operator==(const MemberPath&) const = default;
};

// ssd0 ... ssd31, log0 ... log3: what it looks like, whether or not an array has it.
bool IsMemberName(std::string_view name);
// SSDs before log devices, each by number.
bool MemberBefore(std::string_view a, std::string_view b);

struct ArrayFile {
  std::filesystem::path file;  // absolute
  std::string uuid;
  std::string name;
  std::vector<MemberPath> members;
  std::vector<std::string> spares;  // paths as written in the file

  // Where a member is: its path, taken from the directory of the file.
  [[nodiscard]] std::filesystem::path Locate(const MemberPath& member) const {
    return LocatePath(member.path);
  }
  // The same for any path as written in the file.
  [[nodiscard]] std::filesystem::path LocatePath(const std::string& path) const;
  // The argument that a person would type for this array: the directory for an array.toml, else the
  // file.
  [[nodiscard]] std::filesystem::path Argument() const;

  // `path` is absolute in all of these.
  [[nodiscard]] bool ListsSpare(const std::filesystem::path& path) const;
  void AddSpare(const std::filesystem::path& path);
  void DropSpare(const std::filesystem::path& path);
  // The member whose path this is; empty if it is none's.
  [[nodiscard]] std::string MemberAt(const std::filesystem::path& path) const;
  // The member is at `path` from now on, which is no spare's and no other member's any more. Where
  // it is there already its path stays as it is written.
  void MoveMember(const std::string& member_name, const std::filesystem::path& path);
  // Members were found at these paths (absolute). Where another is listed there, that one gets the
  // place that became free, or none: members may have changed places. Each keeps its line. False:
  // nothing has changed.
  bool PlaceMembers(const std::vector<MemberPath>& found);
};

// The file that an ARRAY argument means: DIR/array.toml for a directory, else the path itself.
// Absolute, through no symbolic link to a directory. Need not exist; says nothing about what is in
// it.
std::filesystem::path ArrayFilePath(const std::filesystem::path& argument);

// Absolute, without symbolic links in its directories; itself it may be one (/dev/disk/by-id/...).
std::filesystem::path ResolveParent(const std::filesystem::path& path);

// Unknown keys, wrong types, missing or doubled members: kCorrupt, one line with file and line
// number. `file` is kept in the result and shown in messages.
Result<ArrayFile> ParseArrayFile(std::string_view text, const std::filesystem::path& file);

// Find and parse the file of an ARRAY argument. kNotFound with the mend if there is none.
Result<ArrayFile> LoadArrayFile(const std::filesystem::path& argument);

// `path` (absolute) as array.toml names it: relative where it lies in or below the file's
// directory, so that both can be moved together.
std::string PathFor(const ArrayFile& array, const std::filesystem::path& path);

std::string FormatArrayFile(const ArrayFile& array);

// Write to array.file atomically and durably: a temporary file beside it, fsync, rename, fsync of
// the directory. Where it is a symbolic link, what that leads to is written.
Status WriteArrayFile(const ArrayFile& array);
// It could be read again. Else kInvalidArgument, with what to do.
Status CheckReadable(const ArrayFile& array);
// It could be read again, and the temporary file can be written. Taken away again.
Status CheckWritable(const ArrayFile& array);

// Read the file of `array` anew, change it, and write it as above if that changed anything; `array`
// becomes what stands there. Where the file is gone, it is made of `array`. Several processes
// change it one after the other, so that no change undoes another's. kBusy: it is another array's
// by now.
Status ChangeArrayFile(ArrayFile& array, const std::function<void(ArrayFile&)>& change);

// Another array has taken the directory's name: what this one writes beside its array.toml is not
// to go there. Blocks as long as the file system does.
bool IsAnothersByNow(const ArrayFile& array);

}  // namespace eplog
