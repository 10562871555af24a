// The engine as the harness sees it: nothing but the public API.
#pragma once

#include <utility>

#include "tests/torture/machine.h"

namespace eplog::torture {

class EngineFactory final : public ArrayFactory {
 public:
  [[nodiscard]] bool survives_failures() const override { return true; }
  Task<Status> Create(EventLoop& loop, std::vector<Device*> ssds, std::vector<Device*> logs,
                      CreateOptions options) override {
    return Array::Create(loop, std::move(ssds), std::move(logs), std::move(options));
  }
  Task<Result<std::unique_ptr<Array>>> Open(EventLoop& loop, std::vector<Device*> devices,
                                            OpenOptions options, EngineHooks* hooks) override {
    return OpenHooked(loop, std::move(devices), std::move(options), hooks);
  }
};

}  // namespace eplog::torture
