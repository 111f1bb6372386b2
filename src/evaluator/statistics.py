class statistics:
    # The interpreter has no subclasses.
    StatisticsError = ValueError

    def mean(data):
        values = _values(data, 1, "mean")
        return _number(sum(values) / len(values), values)

    def fmean(data):
        values = _values(data, 1, "fmean")
        return sum(values) / len(values)

    def median(data):
        values = sorted(_values(data, 1, "median"))
        half = len(values) // 2
        return values[half] if len(values) % 2 else (values[half - 1] + values[half]) / 2

    def median_low(data):
        values = sorted(_values(data, 1, "median_low"))
        return values[(len(values) - 1) // 2]

    def median_high(data):
        values = sorted(_values(data, 1, "median_high"))
        return values[len(values) // 2]

    def mode(data):
        return statistics.multimode(_values(data, 1, "mode"))[0]

    def multimode(data):
        counts = {}
        for value in data:
            counts[value] = counts.get(value, 0) + 1
        most = max(counts.values(), default=0)
        return [value for value, count in counts.items() if count == most]

    def variance(data):
        return _variance(_values(data, 2, "variance"), 1)

    def pvariance(data):
        return _variance(_values(data, 1, "pvariance"), 0)

    def stdev(data):
        return _variance(_values(data, 2, "stdev"), 1) ** 0.5

    def pstdev(data):
        return _variance(_values(data, 1, "pstdev"), 0) ** 0.5


def _values(data, least, name):
    values = list(data)
    if len(values) < least:
        count = "one data point" if least == 1 else "two data points"
        raise ValueError(f"{name} requires at least {count}")
    return values


def _number(result, values):
    whole = all([isinstance(value, int) for value in values]) and result == int(result)
    return int(result) if whole else result


def _variance(values, freedom):
    mean = sum(values) / len(values)
    return _number(sum([(value - mean) ** 2 for value in values]) / (len(values) - freedom), values)
