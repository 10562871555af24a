// A verb of an array that may be served: by the process that serves it, or on the array opened here.
#pragma once

#include <cstdint>
#include <functional>
#include <string_view>

#include "eplog/options.h"
#include "eplog/result.h"
#include "host/array_file.h"
#include "host/session.h"
#include "report/json.h"

namespace eplog {

// What a verb can do in both ways: `request` for the serving process; `offline`, on the array
// opened here, when there is none. The result of either.
Result<Json> AskOrOpen(std::string_view verb, const ArrayFile& file, const Json& request,
                       const std::function<Result<Json>(Session&)>& offline,
                       const std::function<void(uint64_t, uint64_t)>& progress = {});
// The same for what only looks: the array is opened read-only.
Result<Json> AskOrLook(std::string_view verb, const ArrayFile& file, const Json& request,
                       const std::function<Result<Json>(Session&)>& look,
                       const OpenOptions& open = {},
                       const std::function<void(uint64_t, uint64_t)>& progress = {});

}  // namespace eplog
