#include "host/ask_or_open.h"

#include <fmt/format.h>

#include <optional>
#include <utility>

#include "base/utf8.h"
#include "host/server.h"

namespace eplog {
namespace {

// A request is JSON, which knows no other text.
Status CheckTellable(const ArrayFile& file, const Json& request) {
  const auto path = request.find("path");
  if (path == request.end() || IsUtf8(path->get_ref<const std::string&>())) {
    return OkStatus();
  }
  const auto server = FindServer(file);
  EPLOG_TRY(server);
  if (!*server) {
    return OkStatus();
  }
  return Fail(ErrorCode::kInvalidArgument,
              fmt::format("{} is not UTF-8, and the process that serves '{}' cannot be told such a "
                          "path: give a link to it, or unmount the array first",
                          path->get_ref<const std::string&>(), file.name));
}

// nullopt: nobody serves the array. Who was killed and does not end still holds its devices: cut off
// then.
Result<std::optional<Json>> Ask(std::string_view verb, const ArrayFile& file, const Json& request,
                                const std::function<void(uint64_t, uint64_t)>& progress) {
  EPLOG_TRY(CheckTellable(file, request));
  auto answer = AskServer(file, request, progress);
  const auto nobody = answer.ok() ? Result<bool>(false) : NobodyServes(answer.error(), file);
  EPLOG_TRY(nobody);
  if (*nobody) {
    CutMountsOfTheDying(verb);
    return std::optional<Json>();
  }
  if (!answer.ok()) {
    return Fail(std::move(answer).error());
  }
  return std::optional<Json>(std::move(*answer));
}

}  // namespace

Result<Json> AskOrOpen(std::string_view verb, const ArrayFile& file, const Json& request,
                       const std::function<Result<Json>(Session&)>& offline,
                       const std::function<void(uint64_t, uint64_t)>& progress) {
  auto answer = Ask(verb, file, request, progress);
  EPLOG_TRY(answer);
  if (*answer) {
    return std::move(**answer);
  }
  auto session = Session::Open(verb, file, MemberOptions{});
  if (!session.ok()) {
    return Fail(std::move(session).error());
  }
  auto result = offline(**session);
  Status closed = (*session)->Close();
  if (result.ok() && !closed.ok()) {
    return Fail(std::move(closed).error());
  }
  return result;
}

Result<Json> AskOrLook(std::string_view verb, const ArrayFile& file, const Json& request,
                       const std::function<Result<Json>(Session&)>& look, const OpenOptions& open,
                       const std::function<void(uint64_t, uint64_t)>& progress) {
  auto answer = Ask(verb, file, request, progress);
  EPLOG_TRY(answer);
  if (*answer) {
    return std::move(**answer);
  }
  MemberOptions options;
  options.read_only = true;
  auto session = Session::Open(verb, file, options, open);
  if (!session.ok()) {
    return Fail(std::move(session).error());
  }
  return look(**session);
}

}  // namespace eplog
