// The process that serves an array: found by the array's UUID, believed by the devices that it
// holds. A copy of an array has its UUID too, and is another array.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "control/control.h"
#include "eplog/device.h"
#include "eplog/result.h"
#include "host/array_file.h"
#include "host/mount_table.h"
#include "report/json.h"

namespace eplog {

// A device that an array holds, or held, by the name that its superblock gives it.
struct HeldMember {
  std::string name;
  std::string path;
  DeviceIdentity identity;
};

struct Server {
  int pid = 0;
  std::string directory;       // where it is mounted
  dev_t mount = 0;             // the number of what is mounted there; 0: it does not say
  std::filesystem::path file;  // the array.toml by which it was opened
  std::string name;
  std::vector<HeldMember> held;  // when it was asked; empty: it does not say
};

// A connection to the process that serves an array.
struct ServerLink {
  Server server;
  ControlClient client;
};

// Who serves this array: most of the devices that array.toml lists, of those that tell anything.
// Waits for a device that does not answer only where the others do not tell. kNotFound: nobody
// does. kBusy: it cannot be told whether the array is served, since some of its devices belong to
// what a process serves, and others do not.
Result<ServerLink> ConnectServer(const ArrayFile& file);
// Who serves what is mounted there, whatever array that is. kNotFound: nobody. kBusy: nobody is
// known to, and a process that may be it does not answer.
Result<ServerLink> ConnectServerOf(const MountEntry& mount);

// The same as ConnectServer, only to know. nullopt: nobody serves it, though somebody may serve a
// copy of it. Errors, where it cannot be told, as WhoAnswers.
Result<std::optional<Server>> FindServer(const ArrayFile& file);

// Who serves an array with its UUID.
struct Answering {
  Server server;
  bool of_copy = false;  // that is another array: one is a copy of the other
};
// Errors as ControlClient::Connect: kNotFound, if nobody does. Others also where its devices could
// not be looked at.
Result<Answering> WhoAnswers(const ArrayFile& file);

// The process that serves this array answers `request` ({"verb": ...}). Errors as ConnectServer. To `status`, `scrub`,
// `fail` and `plan` is added what that process cannot see: "files_removed", the names that FindRemoved finds, if there are any.
Result<Json> AskServer(const ArrayFile& file, const Json& request,
                       const std::function<void(uint64_t, uint64_t)>& progress = {});
// Whether this error of AskServer's means that nobody serves the array: `not found` may also be
// what a serving process says of a volume. Errors as FindServer.
Result<bool> NobodyServes(const Error& error, const ArrayFile& file);

// LoadArrayFile, for an array that may be served: where its array.toml is gone or cannot be read,
// the process that serves it says what stood there. With a warning then.
Result<ArrayFile> FindArray(std::string_view verb, const std::filesystem::path& argument);

// Its array.toml can be changed so: it is whole, or not there, so that it is written anew; it could
// be read again; and its file system takes it. Nothing is changed. Ends (see BoundedCall): `change`
// refers to nothing that its caller could take away.
Status CheckChangeable(const ArrayFile& file, std::function<void(ArrayFile&)> change);

// What a serving process tells of itself: the answer to the verb `serving`.
Json DescribeServing(const ArrayFile& file, const std::string& directory,
                     const std::vector<HeldMember>& held, const std::vector<HeldMember>& before);

// Of the arrays that are mounted: a process that served one, was killed and does not end, since a
// thread of it waits in the kernel for somebody who waits for an answer from it, is cut off from
// its mount. It ends then. Before any look at a path that may lie on such a mount, which would wait
// for ever; so this looks at none.
void CutMountsOfTheDying(std::string_view verb);

}  // namespace eplog
