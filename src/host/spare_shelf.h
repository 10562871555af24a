// SpareShelf: what a served array's spares are on disk, and where they are written down.
#pragma once

#include <string>
#include <vector>

#include "eplog/device.h"
#include "eplog/result.h"
#include "eplog/task.h"

namespace eplog {

// A spare that can be used.
struct SpareDevice {
  Device* device = nullptr;  // borrowed, until the shelf is told to remove it
  bool fits_ssd = false;
  bool fits_log = false;
  // It was cut off while it stepped in, and nothing says that it is a spare: PutBack before it is
  // used.
  bool wiped = false;
};

// Whoever owns devices and array.toml. Spares are named by the absolute paths under which they are
// listed; which device that is, he looks anew each time.
class SpareShelf {
 public:
  virtual ~SpareShelf() = default;
  SpareShelf(const SpareShelf&) = delete;
  SpareShelf& operator=(const SpareShelf&) = delete;

  // What array.toml lists, without what a person had left out when the array was opened.
  [[nodiscard]] virtual std::vector<std::string> Listed() const = 0;
  // A listed device that is no member of the array: looked at and opened; nothing is written to it.
  // Again for one that is open already: then it is the same device if it still is what is at the
  // path. An error says why it cannot be used; what was open is closed.
  virtual Task<Result<SpareDevice>> Open(std::string path) = 0;
  // Makes the device that was looked at a spare, whatever it holds, and lists it. Durable on
  // return. kBusy: it is another that is at the path. After an error it is closed.
  virtual Task<Result<SpareDevice>> Add(std::string path, DeviceIdentity looked_at) = 0;
  // It is not used any more, and stays listed.
  virtual void Close(const std::string& path) = 0;
  // Makes what is open a spare again after it was wiped for nothing.
  virtual Task<Status> PutBack(std::string path) = 0;
  // Takes it from the list and wipes what makes it a spare. kNotFound: it is none. Once it is not
  // listed any more it is closed, also after an error.
  virtual Task<Status> Remove(std::string path) = 0;
  // Writes down that this member is at `path` from now on.
  virtual Task<Status> Joined(std::string member, std::string path) = 0;

 protected:
  SpareShelf() = default;
};

}  // namespace eplog
