#include "terminal/console.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <chrono>
#include <cstdlib>

#include "report/status_json.h"
#include "text/units.h"
#include "text/words.h"

namespace eplog {
namespace {

constexpr double kWindowSeconds = 10;
constexpr double kRedrawSeconds = 0.1;
constexpr double kLineSeconds = 3;
constexpr int kBarCells = 24;

double Now() {
  const auto since = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration<double>(since).count();
}

// What --json says of a failure, besides the line on standard error.
struct JsonErrors {
  bool wanted = false;
  bool document = false;  // there is one already
  std::string verb;
  std::string message;  // the last
};
JsonErrors& ErrorsAsJson() {
  static JsonErrors errors;
  return errors;
}

void ErrorLine(std::string_view verb, std::string_view kind, std::string_view what) {
  const std::string head = verb.empty() ? "eplog" : fmt::format("eplog {}", verb);
  const std::string line = fmt::format("{}: {}{}\n", head, kind, OneLine(what));
  std::fflush(stdout);
  std::fwrite(line.data(), 1, line.size(), stderr);
}

int Failed(std::string_view verb, std::string_view what, int status) {
  ErrorLine(verb, "", what);
  ErrorsAsJson().verb = verb;
  ErrorsAsJson().message = OneLine(what);
  return status;
}

bool ColourWanted() {
  static const bool wanted = ::isatty(STDOUT_FILENO) == 1 &&
                             std::getenv("NO_COLOR") == nullptr;  // NOLINT(concurrency-mt-unsafe)
  return wanted;
}

}  // namespace

int ReportError(std::string_view verb, const Error& error) {
  return Failed(verb, error.ToString(),
                error.code == ErrorCode::kInvalidArgument ? kWrongUsage : kFailed);
}

int ReportUsage(std::string_view verb, std::string_view what) {
  return Failed(verb, what, kWrongUsage);
}

void ReportErrorsAsJson() {
  ErrorsAsJson().wanted = true;
}

void Warn(std::string_view verb, std::string_view what) {
  ErrorLine(verb, "warning: ", what);
}

void Print(std::string_view text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fputc('\n', stdout);
}

void PrintJson(const Json& document) {
  ErrorsAsJson().document = true;
  // Names from disks may not be UTF-8: shown, never thrown over.
  Print(document.dump(2, ' ', false, Json::error_handler_t::replace));
}

int FinishOutput(int status) {
  const JsonErrors& errors = ErrorsAsJson();
  if (errors.wanted && !errors.document && (status == kFailed || status == kWrongUsage)) {
    PrintJson(
        {{"error", {{"verb", errors.verb}, {"message", errors.message}, {"exit_status", status}}}});
  }
  if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0) {
    const bool done = status == kDone || status == kDoneWithFindings;
    ErrorLine("", "",
              done ? "the command was carried out, but standard output cannot be written to"
                   : "cannot write to standard output");
    return done ? kFailed : status;
  }
  return status;
}

std::string ShellWord(std::string_view text) {
  constexpr std::string_view kPlain = "%+,-./:=@_";
  const bool plain = !text.empty() && std::all_of(text.begin(), text.end(), [&](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 ||
           kPlain.find(c) != std::string_view::npos;
  });
  if (plain) {
    return std::string(text);
  }
  std::string out = "'";
  for (const char c : text) {
    out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  }
  return out + "'";
}

std::string Paint(Colour colour, std::string_view text) {
  if (!ColourWanted()) {
    return std::string(text);
  }
  const char* code = "1";
  switch (colour) {
    case Colour::kRed:
      code = "31";
      break;
    case Colour::kGreen:
      code = "32";
      break;
    case Colour::kYellow:
      code = "33";
      break;
    case Colour::kBold:
      code = "1";
      break;
  }
  return fmt::format("\033[{}m{}\033[0m", code, text);
}

void ProgressEstimate::Add(double now_seconds, uint64_t done, uint64_t total) {
  done_ = done;
  total_ = std::max(done, total);
  const bool crowded =
      window_.size() > 1 && now_seconds - window_[window_.size() - 2].at < kRedrawSeconds;
  if (crowded) {
    window_.back() = {now_seconds, done};
  } else {
    window_.push_back({now_seconds, done});
  }
  // Keep one sample from before the window, so that the rate spans all of it.
  while (window_.size() > 2 && window_[1].at < now_seconds - kWindowSeconds) {
    window_.pop_front();
  }
}

double ProgressEstimate::fraction() const {
  return total_ == 0 ? 0 : static_cast<double>(done_) / static_cast<double>(total_);
}

double ProgressEstimate::rate() const {
  if (window_.size() < 2) {
    return 0;
  }
  const double seconds = window_.back().at - window_.front().at;
  const auto units =
      static_cast<double>(window_.back().done) - static_cast<double>(window_.front().done);
  return seconds <= 0 || units <= 0 ? 0 : units / seconds;
}

double ProgressEstimate::seconds_left() const {
  const double speed = rate();
  return speed <= 0 ? -1 : static_cast<double>(total_ - done_) / speed;
}

ProgressBar::ProgressBar(std::string_view verb, std::string_view what, Unit unit)
    : verb_(verb),
      what_(what),
      unit_(unit),
      terminal_(::isatty(STDERR_FILENO) == 1),
      started_(Now()) {
  last_shown_ = started_;
}

std::string ProgressBar::Figures() const {
  std::string out = fmt::format("{:3.0f}%", estimate_.fraction() * 100);
  if (unit_ == Unit::kBytes) {
    out += fmt::format(" of {}", HumanBytes(estimate_.total()));
    if (estimate_.rate() > 0) {
      out += fmt::format(", {}/s", HumanBytes(static_cast<uint64_t>(estimate_.rate())));
    }
  } else {
    out += fmt::format(", {} of {}", estimate_.done(), estimate_.total());
  }
  if (estimate_.seconds_left() >= 0) {
    out += fmt::format(", {} left", HumanSeconds(estimate_.seconds_left()));
  }
  return out;
}

void ProgressBar::Draw() {
  const int full = static_cast<int>(estimate_.fraction() * kBarCells);
  const std::string bar = std::string(static_cast<size_t>(full), '#') +
                          std::string(static_cast<size_t>(kBarCells - full), '.');
  const std::string line = fmt::format("\r\033[K{} [{}] {}", what_, bar, Figures());
  std::fwrite(line.data(), 1, line.size(), stderr);
  std::fflush(stderr);
  drawn_ = true;
}

void ProgressBar::Update(uint64_t done, uint64_t total) {
  const double now = Now();
  estimate_.Add(now, done, total);
  if (now - last_shown_ < (terminal_ ? kRedrawSeconds : kLineSeconds)) {
    return;
  }
  last_shown_ = now;
  if (terminal_) {
    Draw();
  } else {
    const std::string line = fmt::format("eplog {}: {} {}\n", verb_, what_, Figures());
    std::fwrite(line.data(), 1, line.size(), stderr);
  }
}

void ProgressBar::Finish() {
  if (drawn_) {
    std::fputs("\r\033[K", stderr);
    drawn_ = false;
  }
}

std::function<void(uint64_t, uint64_t)> ProgressBar::Sink() {
  return [this](uint64_t done, uint64_t total) { Update(done, total); };
}

}  // namespace eplog
