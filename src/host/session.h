// How a verb reaches an array: by asking the process that serves it, or by opening it in this
// process under its lock.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "eplog/array.h"
#include "eplog/examine.h"
#include "eplog/result.h"
#include "format/superblock.h"
#include "host/array_file.h"
#include "host/array_owner.h"
#include "host/change_turn.h"
#include "host/device_closer.h"
#include "host/members.h"
#include "host/one_writer.h"
#include "host/scrub_mark.h"
#include "host/server.h"
#include "report/event_log.h"
#include "report/json.h"
#include "runtime/helper_thread.h"
#include "runtime/io_uring_loop.h"
#include "runtime/run_task.h"

namespace eplog {

// Devices that may be looked at or opened at the same time beside a running array: those that hang
// delay no others unless there are so many.
inline constexpr size_t kMostOpenings = 64;

// From the kernel.
uint64_t Entropy();

// Where what happens to an array is written down.
std::string EventsPath(const ArrayFile& file);

// An array that this process has open. Its destructor drops it without closing: for read-only
// arrays and errors.
class Session final : public ArrayOwner {
 public:
  // `verb` is for warnings about members that are left out: missing, or no good members. Nothing is
  // written to them; with more than m of them the array does not open. kBusy names the process that
  // holds the array.
  // What array.toml says when the devices are locked counts, not what it said before.
  // Of `open` the caller sets what he chooses; read_only, without_logs and entropy are set here.
  static Result<std::unique_ptr<Session>> Open(std::string_view verb, const ArrayFile& read_before,
                                               const MemberOptions& options, OpenOptions open = {});
  // Waits for requests that devices have not answered, for a bounded time. What is unanswered then
  // stays until the process ends, which the kernel delays for as long as it must.
  ~Session() override;

  [[nodiscard]] Array& array() { return *array_; }
  [[nodiscard]] IoUringLoop& loop() { return *loop_; }
  template <typename T>
  T Run(Task<T> task) {
    return RunTask(*loop_, std::move(task));
  }
  // What is at the path now, for somebody who may put it into the array. It lives until everybody
  // who opened it has closed it, the array does not hold it (any more), and nothing is in flight on
  // it: members that fail are closed too. Nobody waits for that but who opens the same device anew.
  // The same device, by whatever path, is opened once.
  // kInvalidArgument: it is part of the array. kBusy: others hold it, it was a member and hangs, or
  // it is not the device that was looked at by this path before.
  Task<Result<Device*>> OpenDevice(std::string path, DeviceIdentity looked_at) override;
  void CloseDevice(Device& device) override;
  // Devices that are open, whether they are members or not.
  [[nodiscard]] size_t open_devices() const { return members_.opened.size(); }
  // Where the members were found, and what has changed since; array.toml says the same, unless the
  // array is open read-only or it could not be changed.
  [[nodiscard]] const ArrayFile& file() const { return file_; }
  // What is at these paths was to be left out (MemberOptions::without): it is no spare, whatever is
  // listed.
  [[nodiscard]] const std::vector<std::filesystem::path>& left_out_as_told() const {
    return members_.as_told;
  }
  // What has changed: whoever writes it into array.toml tells it here too. Of that one change at a
  // time is made, in this turn.
  void Relist(const std::function<void(ArrayFile&)>& change) { change(file_); }
  [[nodiscard]] std::shared_ptr<ChangeTurn> change_turn() const { return change_turn_; }
  // Those that the array holds now.
  [[nodiscard]] std::vector<HeldMember> Held() const;
  // Those that it held when it was opened, or since, and does not any more; the last one last.
  [[nodiscard]] std::vector<HeldMember> HeldBefore();
  // The superblock of any member, read as the array reads it.
  Task<Result<Superblock>> AnyMember();
  Status Inject(const std::string& path, const Injection& injection) override;
  void ForgetScrubMark() override;
  Json Describe(const std::string& directory) override;
  // Besides the log.
  void Listen(EventSink sink) override { listener_ = std::move(sink); }
  // For the log.
  void Tell(const ArrayEvent& event) override;
  // Flush, checkpoint, stop, let the devices go. At the end of every change.
  Status Close();
  // After the array was closed by somebody else: drop it and let the devices go, which is waited
  // for, for a bounded time.
  void Release() override;

 private:
  Session() = default;
  void WriteDownPlaces(std::string_view verb);
  void Hear(const ArrayEvent& event, const std::string& verb);
  void Remember();
  Member* Find(const DeviceIdentity& looked_at);
  Result<Device*> OpenAgain(Member& open, const std::string& path);
  std::vector<Device*> Trusted(const ArrayFile& file, const Examination& found);
  // What is at the path, unless it is something else than was looked at. Blocks.
  Result<std::unique_ptr<FileDevice>> OpenIdentified(const ArrayFile& file, const std::string& path,
                                                     const DeviceIdentity& looked_at);
  // Those that nobody needs any more are closed at once, or as soon as they are idle.
  bool LetGo();
  static Task<Result<Superblock>> SuperblockOf(Device& device);
  Task<Status> CheckNoneHangs(Device& device);
  void LetGoSoon();
  void LetDevicesGo();
  [[nodiscard]] bool HasStopped() const;
  void LeaveBehind();
  Task<void> LetGoWhenIdle();

  OneWriter writer_;  // before all that may still write
  OneWriter reader_;
  // Whoever opens the array next trusts what hangs here: the array has stopped, or has not opened,
  // and nothing of it is written down.
  bool trusted_ = true;
  Members members_;                    // first: what hangs is only let go when the loop is gone
  std::unique_ptr<IoUringLoop> loop_;  // before all that lives on it
  std::unique_ptr<HelperThread> helper_;
  std::vector<HeldMember> ever_held_;
  DeviceCloser closer_;
  bool letting_go_ = false;
  ArrayFile file_;
  const std::shared_ptr<ChangeTurn> change_turn_ = std::make_shared<ChangeTurn>();
  MemberOptions options_;
  std::unique_ptr<EventLog> events_;
  std::unique_ptr<ScrubMarkFile> scrub_mark_;  // null if opened read-only
  EventSink listener_;
  std::unique_ptr<Array> array_;
};

}  // namespace eplog
