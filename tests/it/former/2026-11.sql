SELECT 'ranges', count(*), sum(k), sum(v), max(s), count(DISTINCT ts) FROM ranges;
SELECT 'hashed', count(*), sum(usage), min(region), max(region), max(ts) FROM hashed;
SELECT * FROM rules ORDER BY area, id;
SELECT 'events', count(*), sum(v), sum(device), min(ts), max(ts) FROM events;
SELECT * FROM kinds ORDER BY k;
SELECT city, temp, sky FROM weather;
