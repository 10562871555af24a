// The verbs that a serving process answers on its control socket. Requests are {"verb":NAME,
// arguments...}:
//
//   status                            the document of status_json.h
//   serving                           which array this is, from whoever opened it; null if he does
//                                     not say; with the number of the mounted file system
//   lost                              what is beyond repair, as report_json.h has it
//   commit                            null; with progress; durable
//   checkpoint                        null; counts
//   volume-create  name, size_bytes   {"id"}
//   volume-list                       [{"name","id","size_bytes","allocated_bytes"}...], by name
//   volume-resize  name, size_bytes   null; invalid argument beyond what a volume can be
//   volume-delete  name               null; busy while a file of the mount is open; not found if a
//                                     rename took the name away meanwhile
//   plan           change, ...        what it would do (plan_json.h); nothing is changed
//   umount                            null; when everything is durable and the array's devices are
//                                     let go; busy, and nothing changed, while files are open
//
//   replace        device, path, identity      {"unwritten"}: why the new place could not be
//   written
//                                              down, else ""; what is there is overwritten
//   spare-add      path, identity              null; what is there is overwritten
//   spare-remove   path                        null; not found if it stepped in meanwhile
//
// Of `replace` and `spare-add`, `identity` ({"block","device","inode"}) says which device was
// looked at by this path; busy, and nothing is written, if another is there by now.
//
// A volume's new size is announced to the kernel before it is answered; names it asks for each
// time.
#pragma once

#include <string>

#include "control/control.h"
#include "eplog/array.h"
#include "eplog/result.h"
#include "frontend/fuse_server.h"
#include "report/json.h"
#include "report/status_json.h"
#include "runtime/sync.h"

namespace eplog {

class ArrayOwner;
class SpareKeeper;

class DaemonVerbs {
 public:
  struct Served {
    ArrayOwner& owner;
    SpareKeeper* spares = nullptr;  // null: none may be used
    std::string directory;          // where it is mounted
  };

  DaemonVerbs(EventLoop& loop, Array& array, FuseServer& fuse, ServingInfo serving, Served served);

  [[nodiscard]] Task<Result<Json>> Run(Json request, ProgressSink progress);

  // The array is closed, with this result: answers `umount`, and refuses everything else from now
  // on.
  void Closed(Status status);

 private:
  using Handler = Task<Result<Json>> (DaemonVerbs::*)(Json request, ProgressSink progress);
  static Handler HandlerOf(const std::string& verb);

  Task<Result<Json>> GetStatus(Json request, ProgressSink progress);
  Task<Result<Json>> GetServing(Json request, ProgressSink progress);
  Task<Result<Json>> FindLost(Json request, ProgressSink progress);
  Task<Result<Json>> Commit(Json request, ProgressSink progress);
  Task<Result<Json>> Checkpoint(Json request, ProgressSink progress);
  Task<Result<Json>> Discard(Json request, ProgressSink progress);
  Task<Result<Json>> FailDevice(Json request, ProgressSink progress);
  Task<Result<Json>> ReplaceDevice(Json request, ProgressSink progress);
  Task<Result<Json>> Scrub(Json request, ProgressSink progress);
  Task<Result<Json>> Plan(Json request, ProgressSink progress);
  Task<Result<Json>> InjectFaults(Json request, ProgressSink progress);
  Task<Result<Json>> SetBuffers(Json request, ProgressSink progress);
  Task<Result<Json>> SetPace(Json request, ProgressSink progress);
  Task<Result<Json>> CreateVolume(Json request, ProgressSink progress);
  Task<Result<Json>> ListVolumes(Json request, ProgressSink progress);
  Task<Result<Json>> ResizeVolume(Json request, ProgressSink progress);
  Task<Result<Json>> DeleteVolume(Json request, ProgressSink progress);
  Task<Result<Json>> AddSpare(Json request, ProgressSink progress);
  Task<Result<Json>> RemoveSpare(Json request, ProgressSink progress);
  Task<Result<Json>> Umount(Json request, ProgressSink progress);

  // Why it could not be written down; empty if it was.
  Task<Result<std::string>> PutInPlace(uint32_t device, Device& replacement);
  // The volume that is named is there, and nobody has it open.
  [[nodiscard]] Status MayDelete(const Json& request) const;

  Array& array_;
  FuseServer& fuse_;
  ServingInfo serving_;
  Served served_;
  bool closed_ = false;
  Status close_status_;
  Event closed_event_;
};

}  // namespace eplog
