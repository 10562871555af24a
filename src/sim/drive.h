// Drives: the parameters of real drives, in TOML. The program brings some along
// (src/sim/drives/*.toml, where each number names its source); a file of one's own has the same
// keys, which docs/simulation.md lists.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "eplog/event_loop.h"
#include "eplog/result.h"
#include "sim/parameters.h"
#include "sim/sim_device.h"

namespace eplog::sim {

struct Drive {
  std::string name;
  std::string about;
  uint64_t capacity_bytes = 0;       // of the real one
  std::optional<SsdParameters> ssd;  // one of the two
  std::optional<HddParameters> hdd;
};

// `file` names the text in messages. kInvalidArgument with file, line, what and mend.
Result<Drive> ParseDrive(std::string_view text, const std::string& file);

// What the program brings along: names, and the text of one (nullptr: no such).
[[nodiscard]] std::vector<std::string> ListDrives();
[[nodiscard]] const std::string* BuiltInDrive(std::string_view name);

// Of a file (*.toml) or a name. kNotFound lists the names.
Result<Drive> LoadDrive(const std::string& name);

// A device of any size, a multiple of 512, with the drive's timing, dies and share of
// over-provisioning; `size_bytes` 0: the drive's own.
std::unique_ptr<SimDevice> MakeDevice(EventLoop& loop, std::string name, const Drive& drive,
                                      uint64_t size_bytes = 0);

}  // namespace eplog::sim
